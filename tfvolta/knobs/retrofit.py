"""Mixed precision for a model that is built, and perhaps compiled and trained, already."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.bridge.base import GraphSummary
from tfvolta.bridge.base import Retrofit as Change
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.outputs_alone import nothing_to_gain, outputs_alone
from tfvolta.knobs.own_precision import multiplying_in_float32
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.knobs.policy import tensor_core_note
from tfvolta.knobs.precision_groups import (
    COMPUTE_DTYPES,
    PrecisionGroups,
    group_layers,
    listed,
    products,
    variables_not_float32,
)
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

NAME = "retrofit"
FOUND = "precision found"
_UNDONE = "retrofit undone"


def ensure_retrofit(context: Context) -> None:
    """Brings the context's model under the config's policy, islands included, once per model and state."""
    settings = context.config.mixed_precision
    changes = recall(context, NAME)
    if changes is None or set(group_layers(context.bridge, context.model, settings).outside) - _left(context):
        if changes is None:
            remember(context, FOUND, group_layers(context.bridge, context.model, settings))
        change = context.bridge.retrofit(
            context.model, settings.policy, tuple(settings.float32_layers), settings.float32_output
        )
        remember(context, NAME, [*(changes or []), change])
    context.saved.pop(_UNDONE, None)


def undo_retrofit(context: Context) -> bool:
    """Takes every change of every model back, last first; False where there was none.

    The retrofit and its islands are one change: whichever is undone first takes back both.
    """
    models = forget_all(context, NAME)
    for changed in models:
        for change in reversed(changed.value):
            changed.bridge.undo_retrofit(changed.model, change)
    if models:
        context.saved[_UNDONE] = True
    return bool(context.saved.get(_UNDONE))


def changes_of(context: Context) -> list[Change]:
    """What was changed on the context's model."""
    return list(recall(context, NAME) or [])


def _left(context: Context) -> set[str]:
    """Layers that earlier changes have left in float32: refused ones, and islands with what goes along with them."""
    changes = changes_of(context)
    refused = {layer.name for change in changes for layer in change.refused}
    return refused | {path for change in changes for path in change.islands}


class Retrofit(Knob):
    """Makes the layers of an existing model compute in float16 or bfloat16, in place; variables stay float32.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = NAME
    keys = ("mixed_precision.policy", "mixed_precision.allow_bfloat16_emulation")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P1", "P5", "M3")
    changes_results = True

    def value(self, config: Any) -> Optional[Any]:
        policy = config.get("mixed_precision.policy")
        return None if policy is None else str(policy)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        emulated = ""
        if value == "mixed_bfloat16" and config.get("mixed_precision.allow_bfloat16_emulation"):
            emulated = " (allow_bfloat16_emulation accepts that)"
        return Forecast(
            Status.APPLIED,
            f"Layers that do not compute in {COMPUTE_DTYPES[value]} yet are converted in place when fit starts; "
            f"variables stay float32.{tensor_core_note(value, facts)}{emulated}",
        )

    def apply(self, value: Any, context: Context) -> None:
        del value
        ensure_retrofit(context)

    def verify(self, value: Any, context: Context) -> Outcome:
        settings = context.config.mixed_precision
        groups = group_layers(context.bridge, context.model, settings)
        refused = [layer for change in changes_of(context) for layer in change.refused]
        outside = [path for path in groups.outside if path not in _left(context)]
        dtype = COMPUTE_DTYPES[value]
        observed: dict[str, Any] = {
            "inside": len(groups.inside),
            "islands": list(groups.islands),
            "outside": outside,
            "refused": {layer.name: f"{layer.class_name}: {layer.reason}" for layer in refused},
        }
        if outside or not (groups.inside or groups.islands):
            return Outcome(
                Status.NO_EFFECT,
                f"{len(outside)} layers do not compute in {dtype}: {listed(outside)}; {len(groups.inside)} do:"
                f" {listed(groups.inside) or 'none'}.",
                observed,
            )
        halves = variables_not_float32(context.model)
        if halves:
            return Outcome(
                Status.NO_EFFECT,
                f"Variables that are not float32: {listed(halves)}. They were made so by the model itself.",
                observed,
            )
        found = recall(context, FOUND)
        if found is not None and found.inside and found.outside:
            observed["found_inside"], observed["found_outside"] = list(found.inside), list(found.outside)
        return self._from_the_graph(dtype, groups, context, observed)

    def _from_the_graph(
        self, dtype: str, groups: PrecisionGroups, context: Context, observed: dict[str, Any]
    ) -> Outcome:
        said = _sentence(dtype, groups, observed)
        graph = context.bridge.train_graph(context.model)
        if graph is None:
            if getattr(context.model, "run_eagerly", False):
                return Outcome(
                    Status.APPLIED, f"{said} The model runs eagerly, so there is no graph to look at.", observed
                )
            return Outcome(Status.PENDING, f"{said} The first traced step shows it.", observed)
        counts = {dtype: -(-number // max(1, graph.traces)) for dtype, number in products(graph.operations).items()}
        observed["products"] = counts
        stray = counts.get("float32", 0)
        if dtype != "float32" and not counts.get(dtype) and counts:
            why = f"The traced step has no matrix product or convolution in {dtype}: {counts}."
            if outputs_alone(graph.products.get("float32", ()), context):
                layers = f"The layers that make the outputs have them all: {listed(groups.islands)}."
                return nothing_to_gain(f"{why} {layers}", observed, context)
            return Outcome(Status.NO_EFFECT, why, observed)
        own = _own_code(dtype, graph, groups, context, observed)
        if dtype != "float32" and stray and not groups.islands and not observed["refused"] and not own:
            return Outcome(
                Status.NO_EFFECT,
                f"{stray} matrix products or convolutions of the traced step are in float32, outside of any island.",
                observed,
            )
        seen = f" The traced step has {counts.get(dtype, 0)} matrix products and convolutions in {dtype}"
        rest = f" and {stray} in float32." if stray and dtype != "float32" else "."
        return Outcome(Status.APPLIED, said + seen + rest + own, observed)

    def undo(self, context: Context) -> bool:
        return undo_retrofit(context)


def _own_code(
    dtype: str, graph: GraphSummary, groups: PrecisionGroups, context: Context, observed: dict[str, Any]
) -> str:
    """The sentence on layers that multiply in float32 by code of their own; empty where there are none."""
    names = graph.products.get("float32", ()) if dtype != "float32" else ()
    if not names:
        return ""
    kept = {*groups.islands, *observed["refused"]}
    own = multiplying_in_float32(names, context.model, context.bridge.layers(context.model), kept)
    observed["own_float32"] = own
    return f" {listed(own)} multiplies in float32 by code of its own: the policy gains nothing there." if own else ""


def _sentence(dtype: str, groups: PrecisionGroups, observed: Mapping[str, Any]) -> str:
    refused = observed["refused"]
    parts = [f"{len(groups.inside)} layers compute in {dtype}, variables are float32"]
    if "found_outside" in observed:
        parts.append(
            f"the model came half converted: {listed(observed['found_inside'])} computed in {dtype} already,"
            f" {listed(observed['found_outside'])} did not"
        )
    if groups.islands and dtype != "float32":
        parts.append(f"{len(groups.islands)} stay in float32 as asked: {listed(groups.islands)}")
    if refused:
        parts.append(f"refused: {'; '.join(f'{name} ({why})' for name, why in refused.items())}")
    return "; ".join(parts) + "."
