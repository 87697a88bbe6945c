"""cuDNN's algorithm search as TensorFlow's own convolution kernels use it."""

from __future__ import annotations

from typing import Any, ClassVar

from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.knobs.jit import step_is_compiled
from tfvolta.memory import workspace
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment

DEFAULT_WORKSPACE_MB = workspace.DEFAULT_MB  # of a convolution and its gradients; fused convolutions 4096
AUTO = "auto"
_XLA_HAS_ITS_OWN = "XLA compiles the train step and has its own search, which does not read this variable"


class CudnnKnob(EnvironmentKnob):
    """What both cuDNN knobs share: XLA has a search of its own, so a step that it compiles does not notice them."""

    condition: ClassVar[str] = "XLA does not compile the step, and the model has convolutions"
    xla_lever: ClassVar[str] = ""

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        forecast = super().forecast(value, facts, config)
        if forecast.status is Status.NOT_APPLICABLE or config.get("xla.jit") != "model":
            return forecast
        return Forecast(Status.NO_EFFECT, f"{_XLA_HAS_ITS_OWN}; {self.xla_lever}", self.condition)

    def verify(self, value: Any, context: Context) -> Outcome:
        outcome = super().verify(value, context)
        if outcome.status is not Status.UNVERIFIABLE or context.model is None:
            return outcome
        graph = context.bridge.train_graph(context.model)
        if graph is None:
            return outcome
        convolutions = sum(n for key, n in graph.operations.items() if "Conv" in key)
        observed = {**outcome.observed, "convolutions": convolutions, "must_compile": graph.must_compile}
        if step_is_compiled(context):
            return Outcome(Status.NO_EFFECT, f"{_XLA_HAS_ITS_OWN}; {self.xla_lever}", observed)
        if convolutions == 0:
            return Outcome(Status.NO_EFFECT, "The traced train step has no convolution, so nothing reads it.", observed)
        return Outcome(outcome.status, outcome.message, observed)


class CudnnWorkspace(CudnnKnob):
    """Bounds the scratch memory of one convolution; less memory can rule out a faster algorithm.

    Binds: at the first execution of each kind of convolution kernel in the process (forward, both gradients).
    """

    name = "cudnn_workspace"
    keys = ("cudnn.workspace_limit_mb",)
    closes_at = Moment.KERNEL_EXECUTED
    move_to = (
        "set TF_CUDNN_WORKSPACE_LIMIT_IN_MB (or give the callback to the first fit) before the first convolution runs"
    )
    techniques = ("M12",)
    unverifiable = (
        "Each convolution kernel of TensorFlow reads the limit once into a variable of its own that nothing returns; "
        "it was set before the first convolution."
    )
    xla_lever = "leave it out, or choose xla.jit: off to let TensorFlow's kernels run."

    def variables(self, value: Any) -> dict[str, str]:
        """The variable; none for ``auto``, whose number is known with the GPUs."""
        return {} if value == AUTO else {workspace.VARIABLE: str(value)}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del config
        least = min(gpu.memory_mb for gpu in facts.gpus)
        share = 100 * DEFAULT_WORKSPACE_MB // least
        return (
            f"A convolution may use {_number(value, facts)} MiB of scratch memory; TensorFlow's default is "
            f"{DEFAULT_WORKSPACE_MB} MiB, {share} % of this GPU's {least} MiB. {workspace.reason(least)}"
        )

    def apply(self, value: Any, context: Context) -> None:
        if value != AUTO or context.facts.gpus:
            super().apply(_number(value, context.facts), context)

    def verify(self, value: Any, context: Context) -> Outcome:
        return super().verify(_number(value, context.facts) if context.facts.gpus else value, context)


def _number(value: Any, facts: Any) -> Any:
    """The limit in MiB; of ``auto`` that which the smallest GPU begins with."""
    return workspace.start_mb(min(gpu.memory_mb for gpu in facts.gpus)) if value == AUTO else value


class CudnnAutotune(CudnnKnob):
    """Times the convolution algorithms on first use and keeps the fastest.

    Binds: when the kernels of a function are created, at its first run after tracing.
    """

    name = "cudnn_autotune"
    keys = ("cudnn.autotune",)
    closes_at = Moment.TRAIN_STEP_TRACED
    move_to = "set TF_CUDNN_USE_AUTOTUNE (or give the config to the first fit) before the train step is traced"
    techniques = ("M6",)
    unverifiable = (
        "The switch is read inside the kernels' constructors and nothing returns it; it was set before the train step"
        " was traced."
    )
    xla_lever = "XLA's switch is --xla_gpu_autotune_level in xla.flags (0 is off)."

    def variables(self, value: Any) -> dict[str, str]:
        return {"TF_CUDNN_USE_AUTOTUNE": "1" if value else "0"}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del facts, config
        if value:
            return "cuDNN's algorithms are timed on first use, which is TensorFlow's default."
        return "cuDNN's heuristics choose the algorithms instead of a timing: a faster start, at times slower steps."
