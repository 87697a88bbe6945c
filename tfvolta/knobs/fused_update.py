"""The update of the weights as one program, where XLA does not compile the whole step."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.kernel_records import UPDATE
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit import step_is_compiled
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_NATIVE = "This stack's optimisers compile their updates by themselves where a GPU is visible (jit_compile=True)."
_ONE_REPLICA = ("default", "one_device")


class FusedUpdate(Knob):
    """Compiles the check of the gradients, the loss scale and the update of all weights into one program.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = UPDATE
    keys = ("kernels.fused_update",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("K5",)
    asks_tensorflow = True

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if facts.keras != "keras3":
            return Forecast(Status.NOT_APPLICABLE, _NATIVE)
        if value == "off":
            return Forecast(Status.APPLIED, "The update runs as Keras composes it.")
        if value == "auto" and not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "No GPU is here, and an update is compiled for GPUs only.")
        why_not = _why_not(config)
        if why_not:
            return Forecast(Status.NOT_APPLICABLE, why_not)
        return Forecast(
            Status.APPLIED,
            "Where XLA does not compile the step, it compiles the update: one launch instead of some for each weight.",
        )

    def apply(self, value: Any, context: Context) -> None:
        why_not = self._stays(value, context) or context.bridge.compile_update(context.model, True)
        if not why_not:
            remember(context, self.name, True)
        context.saved[self._key(context)] = why_not

    def verify(self, value: Any, context: Context) -> Outcome:
        idle = Status.NOT_APPLICABLE if value == "auto" else Status.NO_EFFECT
        graph = context.bridge.train_graph(context.model) if context.model is not None else None
        seen = graph is not None and UPDATE in graph.compiled_functions
        observed = {} if graph is None else {"compiled_functions": list(graph.compiled_functions)}
        if context.stack != "keras3":
            return Outcome(Status.NOT_APPLICABLE, _NATIVE)
        if value == "off":
            if seen:
                return Outcome(Status.NO_EFFECT, "An earlier fit has the update compiled.", observed)
            return Outcome(Status.APPLIED, "The update runs as Keras composes it.", observed)
        why_not = context.saved.get(self._key(context), "")
        if why_not:
            return Outcome(idle, why_not, observed)
        if graph is None:
            if getattr(context.model, "run_eagerly", False):
                return Outcome(Status.UNVERIFIABLE, "The model runs eagerly, so there is no graph to look at.")
            return Outcome(Status.PENDING, "Installed; the first traced step shows it.")
        if seen:
            return Outcome(Status.APPLIED, "XLA compiles the update of the traced step as one program.", observed)
        if step_is_compiled(context):
            return Outcome(idle, "XLA compiles the whole step, its update included.", observed)
        return Outcome(idle, "The traced step has no compiled update: its optimiser was not used.", observed)

    def undo(self, context: Context) -> bool:
        models = forget_all(context, self.name)
        for changed in models:
            changed.bridge.compile_update(changed.model, False)
        return bool(models)

    def _stays(self, value: Any, context: Context) -> str:
        """Why the update stays as it is; empty where the bridge is asked."""
        if context.stack != "keras3":
            return _NATIVE
        if value == "off":
            return "The update runs as Keras composes it."
        if value == "auto" and not context.tensorflow.config.get_visible_devices("GPU"):
            return "TensorFlow has no GPU here, and an update is compiled for GPUs only."
        return "" if recall(context, self.name) else _why_not(context.config)

    def _key(self, context: Context) -> str:
        return f"{self.name} of {id(context.model)}"


def _why_not(config: Any) -> str:
    """What of a config leaves the update to Keras."""
    if config.get("mixed_precision.policy") not in (None, "mixed_float16"):
        return "Without a loss scale the update is left to Keras; mixed_precision.policy: mixed_float16 brings one."
    if (config.get("strategy.kind") or "default") not in _ONE_REPLICA:
        return "Several replicas are reduced inside the update, which XLA does not compile."
    if config.get("xla.jit") == "clustering":
        return "xla.jit: clustering compiles the update with what is around it."
    return ""
