"""Grappler's choice between NCHW and NHWC."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.runtime import own_devices
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit import step_is_compiled
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_OPTION = "layout_optimizer"
_XLA = "XLA assigns the layouts of a step that it compiles, and grappler's pass does not see it"


class LayoutOptimizer(Knob):
    """Lets TensorFlow's graph optimiser choose the layout of convolutions on GPUs, or keeps what the script wrote.

    Binds: at the next optimisation of a graph, so at the next call of a function.
    """

    name = "layout_optimizer"
    keys = ("graph.layout_optimizer",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("M13", "K2")
    condition = "XLA does not compile the step, and the model has convolutions"

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if not facts.gpus:
            return Forecast(
                Status.NOT_APPLICABLE, "The layout pass works on GPU kernels only, and this machine has no GPU."
            )
        if config.get("xla.jit") == "model":
            return Forecast(Status.NO_EFFECT, f"{_XLA}.", self.condition)
        if value:
            how = (
                "takes NHWC where most convolutions are float16 (Tensor Cores want it) and NCHW otherwise; this is the"
                " default"
            )
        else:
            how = "leaves the layout that the script wrote, NHWC for Keras's convolutions"
        return Forecast(Status.APPLIED, f"The graph optimiser {how}.", self.condition)

    def apply(self, value: Any, context: Context) -> None:
        optimizer = context.tensorflow.config.optimizer
        context.saved.setdefault(self.name, optimizer.get_experimental_options().get(_OPTION))
        optimizer.set_experimental_options({_OPTION: value})

    def verify(self, value: Any, context: Context) -> Outcome:
        config = context.tensorflow.config
        option = config.optimizer.get_experimental_options().get(_OPTION)
        observed: dict[str, Any] = {"option": option}
        if not own_devices(config.list_logical_devices("GPU")):
            return Outcome(
                Status.NOT_APPLICABLE, "The layout pass works on GPU kernels only, and no GPU is in use.", observed
            )
        if option is not value:
            return Outcome(Status.NO_EFFECT, f"The option is {option}: something set it after tfvolta.", observed)
        if step_is_compiled(context):
            return Outcome(Status.NO_EFFECT, f"{_XLA}.", observed)
        from tfvolta.bridge.tensorflow_private import layout_changes_in_probe

        observed["changes"] = layout_changes_in_probe("GPU:0")
        if bool(observed["changes"]) != value:
            return Outcome(
                Status.NO_EFFECT,
                f"The pass changed {observed['changes']} nodes of a float32 convolution on GPU:0.",
                observed,
            )
        return Outcome(
            Status.APPLIED, f"The pass changed {observed['changes']} nodes of a float32 convolution on GPU:0.", observed
        )

    def undo(self, context: Context) -> bool:
        if self.name not in context.saved:
            return False
        former = context.saved.pop(self.name)
        # TensorFlow cannot forget an option; true is what it does when none was given.
        context.tensorflow.config.optimizer.set_experimental_options({_OPTION: True if former is None else former})
        return True
