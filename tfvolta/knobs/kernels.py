"""Kernels that take the place of what Keras 3 composes of single operations, where XLA does not fuse it."""

from __future__ import annotations

from typing import Any, ClassVar, Optional

from tfvolta.bridge.kernel_records import BATCH_NORM, RECURRENT, KernelChange
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit import step_is_compiled
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.knobs.precision_groups import listed
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_CLUSTERED = "xla.jit: clustering lets XLA fuse these layers with what is around them; on keeps the kernel."


class KernelKnob(Knob):
    """What both kernels share: installed on layers, chosen at each trace, proved by the operations of the traced step.

    Attributes:
        layers: What is served, for a sentence.
        operations: Operations of the kernel, the one first that only it puts into a step.
        native: Why the other stacks have nothing to change.
        needs_gpu: Whether ``on`` needs a GPU too.
    """

    phase = Phase.FIT
    closes_at = Moment.NEVER
    asks_tensorflow = True
    layers: ClassVar[str]
    operations: ClassVar[tuple[str, ...]]
    native: ClassVar[str]
    needs_gpu: ClassVar[bool] = False

    @property
    def shown(self) -> str:
        """The kernel's operation, for a sentence."""
        return self.operations[0].split(":")[0]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if facts.keras != "keras3":
            return Forecast(Status.NOT_APPLICABLE, self.native)
        if value == "off":
            return Forecast(Status.APPLIED, f"{self.layers} run as Keras composes them.")
        if not facts.gpus and (value == "auto" or self.needs_gpu):
            return Forecast(Status.NOT_APPLICABLE, f"No GPU is here, and {self.shown} is chosen for GPUs only.")
        if value == "auto" and config.get("xla.jit") == "clustering":
            return Forecast(Status.NOT_APPLICABLE, _CLUSTERED)
        where = "Where XLA does not compile the step, " if value == "auto" else ""
        return Forecast(Status.APPLIED, f"{where}{self.layers} run {self.shown}; the others stay, with the reason.")

    def apply(self, value: Any, context: Context) -> None:
        if self._why_not(value, context):
            return
        change = context.bridge.install_kernel(context.model, self.name, value == "on")
        earlier = [each for each in recall(context, self.name) or [] if each.undo_token]
        remember(context, self.name, [*earlier, change])

    def _why_not(self, value: Any, context: Context) -> str:
        """Why nothing is installed; empty where it is."""
        if context.stack != "keras3":
            return self.native
        if value == "off":
            return f"{self.layers} run as Keras composes them."
        if (value == "auto" or self.needs_gpu) and not context.tensorflow.config.get_visible_devices("GPU"):
            return f"TensorFlow has no GPU here, and {self.shown} is chosen for GPUs only."
        if value == "auto" and context.config.get("xla.jit") == "clustering":
            return _CLUSTERED
        return ""

    def verify(self, value: Any, context: Context) -> Outcome:
        counts = self._counts(context)
        why_not = self._why_not(value, context)
        if value == "off" and context.stack == "keras3":
            return self._left_to_keras(counts)
        if why_not:
            return Outcome(Status.NOT_APPLICABLE, why_not)
        changes = recall(context, self.name) or [KernelChange(self.name)]
        last: KernelChange = changes[-1]
        observed = {"served": list(last.served), "left": {each.name: each.reason for each in last.left}}
        idle = Status.NOT_APPLICABLE if value == "auto" else Status.NO_EFFECT
        if counts is None:
            return self._before_a_trace(last, idle, observed, context)
        fallbacks = dict(context.bridge.kernel_fallbacks(context.model, self.name))
        observed.update(operations=counts, fallbacks=fallbacks)
        if not counts and value == "auto" and step_is_compiled(context):
            return Outcome(idle, f"XLA compiles the step and fuses {self.layers} by itself.", observed)
        if not counts or not self._is_mine(counts, len(last.served) - len(fallbacks)):
            return Outcome(idle, f"The traced step has no {self.shown} of it.{_reasons(last, fallbacks)}", observed)
        found = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        return Outcome(
            Status.APPLIED,
            f"The traced step has {found} for {len(last.served)} layers.{_reasons(last, fallbacks)}",
            observed,
        )

    def _is_mine(self, counts: dict[str, int], serving: int) -> bool:
        """Whether a step's operations were put there by the kernel, and not by Keras.

        Args:
            counts: The operations, by operation and dtype.
            serving: Layers that were not seen to run Keras's own code.
        """
        return serving > 0 or any(name.split("[")[0] == self.operations[0] for name in counts)

    def _left_to_keras(self, counts: Optional[dict[str, int]]) -> Outcome:
        """Whether nothing of this kernel is in a step that should be Keras's own."""
        if counts is None:
            return Outcome(Status.PENDING, "Left to Keras; the first traced step shows it.")
        mine = {name: number for name, number in counts.items() if self._is_mine({name: number}, 0)}
        if mine:
            return Outcome(
                Status.NO_EFFECT, f"The traced step has {mine}, put there by something else or an earlier fit.", mine
            )
        return Outcome(Status.APPLIED, f"{self.layers} run as Keras composes them.")

    def _before_a_trace(
        self, change: KernelChange, idle: Status, observed: dict[str, Any], context: Context
    ) -> Outcome:
        if not change.served and (getattr(context.model, "built", True) or change.left):
            return Outcome(idle, f"No layer is served.{_reasons(change, {})}", observed)
        if getattr(context.model, "run_eagerly", False):
            return Outcome(
                Status.UNVERIFIABLE,
                f"The model runs eagerly, so there is no graph to look at.{_reasons(change, {})}",
                observed,
            )
        return Outcome(
            Status.PENDING,
            f"Installed on {len(change.served)} layers; the first traced step shows it.{_reasons(change, {})}",
            observed,
        )

    def _counts(self, context: Context) -> Optional[dict[str, int]]:
        """The kernel's operations in one traced step, by operation and dtype; None before a trace."""
        graph = context.bridge.train_graph(context.model) if context.model is not None else None
        if graph is None:
            return None
        return {
            name: -(-number // max(1, graph.traces))
            for name, number in graph.operations.items()
            if name.split("[")[0] in self.operations
        }

    def undo(self, context: Context) -> bool:
        models = forget_all(context, self.name)
        for changed in models:
            for change in reversed(changed.value):
                changed.bridge.undo_kernel(changed.model, change)
        return bool(models)


def _reasons(change: KernelChange, fallbacks: dict[str, str]) -> str:
    """Which layers stay as Keras runs them, and why."""
    reasons: dict[str, list[str]] = {}
    for name, why in [*((each.name, each.reason) for each in change.left), *fallbacks.items()]:
        reasons.setdefault(why, []).append(name)
    if not reasons:
        return "" if change.served else " The model has no such layer."
    return " Left to Keras: " + "; ".join(f"{listed(names)} ({why})" for why, names in reasons.items()) + "."


class FusedBatchNorm(KernelKnob):
    """Normalises batches in one operation that reads float16, instead of eight passes over float32.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = BATCH_NORM
    keys = ("kernels.fused_batch_norm",)
    techniques = ("K5",)
    layers = "BatchNormalization layers"
    operations = ("FusedBatchNormV3",)
    native = "This stack's BatchNormalization is FusedBatchNormV3 by itself."


class CudnnRnn(KernelKnob):
    """Runs LSTM and GRU layers on cuDNN, time first where there is no mask, whatever side a mask is padded on.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = RECURRENT
    keys = ("kernels.cudnn_rnn",)
    techniques = ("K5",)
    layers = "LSTM and GRU layers"
    operations = ("CudnnRNNV3:time_major", "CudnnRNNV3")  # Keras puts the second there too, padded ones need it
    native = "This stack's LSTM and GRU layers choose cuDNN by themselves."
    needs_gpu = True
