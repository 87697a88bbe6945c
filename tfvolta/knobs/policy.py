"""Keras's global dtype policy, for models that are built after it."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.precision_groups import COMPUTE_DTYPES, group_layers, listed
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


def tensor_core_note(policy: str, facts: Any) -> str:
    """What the GPUs of a machine make of a policy; empty where there is nothing to add."""
    if not facts.gpus:
        return "" if policy == "float32" else " Without a GPU it is slower than float32 as a rule."
    first = facts.gpus[0]
    major, minor = first.compute_capability
    if policy == "mixed_bfloat16" and not first.has_bfloat16:
        return (
            f" {first.name} (compute capability {major}.{minor}) has no bfloat16 arithmetic: it runs in float32 and"
            " gains nothing."
        )
    if policy == "mixed_float16" and not first.has_float16_tensor_cores:
        return f" {first.name} (compute capability {major}.{minor}) has no Tensor Cores, which exist from 7.0 on."
    return ""


class Policy(Knob):
    """Makes layers that are constructed from now on compute in float16 or bfloat16; their variables stay float32.

    Binds: when a layer is constructed. Layers that exist already do not notice; ``retrofit`` reaches those.
    """

    name = "policy"
    keys = ("mixed_precision.policy",)
    phase = Phase.BUILD
    closes_at = Moment.MODEL_BUILT
    move_to = "call tfvolta.build_strategy(config) before the model is made"
    techniques = ("P1", "P5", "M3")
    changes_results = True
    covered_by = "retrofit"

    def value(self, config: Any) -> Optional[Any]:
        policy = config.get("mixed_precision.policy")
        return None if policy is None else str(policy)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        return Forecast(
            Status.APPLIED,
            f"Layers constructed from now on compute in {COMPUTE_DTYPES[value]}; variables stay"
            f" float32.{tensor_core_note(value, facts)}",
        )

    def apply(self, value: Any, context: Context) -> None:
        context.saved.setdefault(self.name, context.bridge.global_policy())
        context.bridge.set_global_policy(value)

    def verify(self, value: Any, context: Context) -> Outcome:
        policy = context.bridge.global_policy()
        observed: dict[str, Any] = {"global_policy": policy}
        if context.model is None:
            if policy != value:
                return Outcome(
                    Status.NO_EFFECT, f"Keras's global policy is {policy}: something set it after tfvolta.", observed
                )
            return Outcome(
                Status.PENDING, "Set before the first layer; the layers are looked at when the model exists.", observed
            )
        groups = group_layers(context.bridge, context.model, context.config.mixed_precision)
        observed.update(inside=list(groups.inside), islands=list(groups.islands), outside=list(groups.outside))
        dtype = COMPUTE_DTYPES[value]
        if groups.outside:
            return Outcome(
                Status.NO_EFFECT,
                f"{len(groups.outside)} layers do not compute in {dtype}: {listed(groups.outside)};"
                f" {len(groups.inside)} do: {listed(groups.inside) or 'none'}. A layer takes the policy when it is"
                " constructed.",
                observed,
            )
        islands = groups.islands if dtype != "float32" else ()
        kept = f", {len(islands)} in float32 as asked: {listed(islands)}" if islands else ""
        return Outcome(Status.APPLIED, f"{len(groups.inside)} layers compute in {dtype}{kept}.", observed)

    def undo(self, context: Context) -> bool:
        """Restores the global policy; layers that were constructed meanwhile keep theirs."""
        if self.name not in context.saved:
            return False
        context.bridge.set_global_policy(context.saved.pop(self.name))
        return context.model is None
