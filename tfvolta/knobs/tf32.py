"""TensorFloat-32 for float32 matrix products and convolutions."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.runtime import own_devices
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

NOT_AVAILABLE = "TF32: not available on this GPU"
OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def absence(facts: Any) -> str:
    """Why no GPU of the machine has TensorFloat-32; empty where one has it."""
    if not facts.gpus:
        return "TF32: not available, this machine has no GPU."
    if any(gpu.has_tf32 for gpu in facts.gpus):
        return ""
    first = facts.gpus[0]
    major, minor = first.compute_capability
    return (
        f"{NOT_AVAILABLE} ({first.name}, compute capability {major}.{minor}; it exists from 8.0 on), whatever the"
        " switch says."
    )


class Tf32(Knob):
    """Permits or forbids TensorFloat-32, which keeps 10 bits of a float32's fraction in matrix products.

    Binds: at the next operation; XLA takes it over when it compiles.
    """

    name = "tf32"
    keys = ("math.tf32",)
    phase = Phase.DEVICES
    closes_at = Moment.NEVER
    techniques = ("P7",)
    changes_results = True

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        missing = absence(facts)
        if missing:
            return Forecast(Status.NOT_APPLICABLE, missing)
        if value:
            return Forecast(
                Status.APPLIED,
                "Float32 matrix products and convolutions may use TensorFloat-32, which is TensorFlow's default.",
            )
        return Forecast(
            Status.APPLIED,
            "Float32 matrix products and convolutions keep all 23 bits of the fraction, and lose the Tensor Cores.",
        )

    def apply(self, value: Any, context: Context) -> None:
        experimental = context.tensorflow.config.experimental
        context.saved.setdefault(self.name, experimental.tensor_float_32_execution_enabled())
        experimental.enable_tensor_float_32_execution(value)

    def verify(self, value: Any, context: Context) -> Outcome:
        enabled = bool(context.tensorflow.config.experimental.tensor_float_32_execution_enabled())
        observed: dict[str, Any] = {"switch": enabled}
        missing = absence(context.facts)
        if missing:
            return Outcome(Status.NOT_APPLICABLE, missing, observed)
        if enabled != value:
            return Outcome(Status.NO_EFFECT, f"The switch is {enabled}: something set it after tfvolta.", observed)
        if value and context.environ.get(OVERRIDE) == "0":
            return Outcome(
                Status.NO_EFFECT, f"{OVERRIDE}=0 forbids TensorFloat-32 in NVIDIA's libraries; unset it.", observed
            )
        if context.closed(Moment.CONTEXT_INITIALIZED) is None or not own_devices(
            context.tensorflow.config.list_logical_devices("GPU")
        ):
            return Outcome(Status.APPLIED, f"The switch is {enabled}; no GPU is running yet to try it on.", observed)
        from tfvolta.bridge.tensorflow_private import tf32_rounds

        observed["rounds"] = tf32_rounds("GPU:0")
        if observed["rounds"] != value:
            return Outcome(
                Status.NO_EFFECT,
                f"A float32 product on GPU:0 was {'' if observed['rounds'] else 'not '}rounded to TensorFloat-32.",
                observed,
            )
        return Outcome(
            Status.APPLIED,
            f"A float32 product on GPU:0 was {'' if value else 'not '}rounded to TensorFloat-32.",
            observed,
        )

    def undo(self, context: Context) -> bool:
        if self.name not in context.saved:
            return False
        context.tensorflow.config.experimental.enable_tensor_float_32_execution(context.saved.pop(self.name))
        return True
