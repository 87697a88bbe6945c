"""Which GPUs TensorFlow may use."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.bridge.runtime import own_devices
from tfvolta.errors import PlanError, Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_CUDA = "CUDA_VISIBLE_DEVICES"


def index_problem(value: Any, count: int, environ: Mapping[str, str]) -> Optional[Problem]:
    """What is wrong with a list of GPU indices where TensorFlow sees ``count`` GPUs, or None."""
    if value == "all":
        return None
    missing = [index for index in value if not 0 <= index < count]
    repeated = sorted({index for index in value if value.count(index) > 1})
    if not missing and not repeated:
        return None
    masked = (
        f" {_CUDA}={environ[_CUDA]} is set, and TensorFlow numbers from 0 what that leaves." if _CUDA in environ else ""
    )
    there = f"each at most once, from 0 to {count - 1}" if count else "an empty list, because TensorFlow sees no GPU"
    return Problem(
        where="devices.visible",
        expected=f"GPU indices, {there}",
        received=str(list(value)),
        why=f"{'No GPU has index ' + ', '.join(map(str, missing)) if missing else 'An index is repeated'}.{masked}",
        fix="devices.visible: all",
    )


class VisibleDevices(Knob):
    """Restricts TensorFlow to some GPUs, or hides every one.

    Binds: when the eager context creates the devices. ``CUDA_VISIBLE_DEVICES`` binds earlier and wins: the indices here
    count what it leaves.
    """

    name = "visible_devices"
    keys = ("devices.visible",)
    phase = Phase.DEVICES
    closes_at = Moment.CONTEXT_INITIALIZED
    asks_tensorflow = True
    move_to = "call tfvolta.build_strategy(config) before the first tensor, model or optimizer is made"
    techniques = ("M11",)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        if not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "This machine has no GPU to show or hide.")
        if value == "all":
            return Forecast(Status.APPLIED, f"TensorFlow may use all {len(facts.gpus)} GPUs that CUDA shows it.")
        if not value:
            return Forecast(Status.APPLIED, "Every GPU is hidden: training runs on the CPU.")
        return Forecast(Status.APPLIED, f"TensorFlow may use GPU {', '.join(map(str, value))} and no other.")

    def apply(self, value: Any, context: Context) -> None:
        config = context.tensorflow.config
        gpus = config.list_physical_devices("GPU")
        problem = index_problem(value, len(gpus), context.environ) if gpus else None
        if problem:
            raise PlanError("These GPUs cannot be made visible.", [problem])
        context.saved.setdefault(self.name, config.get_visible_devices("GPU"))
        if gpus:
            config.set_visible_devices(gpus if value == "all" else [gpus[index] for index in value], "GPU")

    def verify(self, value: Any, context: Context) -> Outcome:
        config = context.tensorflow.config
        gpus = config.list_physical_devices("GPU")
        if not gpus:
            return Outcome(Status.NOT_APPLICABLE, "TensorFlow sees no GPU.", {"visible": []})
        visible = [device.name for device in config.get_visible_devices("GPU")]
        observed: dict[str, Any] = {"visible": visible}
        expected = [device.name for device in (gpus if value == "all" else [gpus[index] for index in value])]
        if context.closed(Moment.CONTEXT_INITIALIZED) is not None:
            observed["logical"] = [device.name for device in own_devices(config.list_logical_devices("GPU"))]
        wrong = sorted(visible) != sorted(expected) or len(observed.get("logical", expected)) < len(expected)
        if wrong or (not expected and observed.get("logical")):
            return Outcome(
                Status.NO_EFFECT,
                f"TensorFlow uses {', '.join(visible) or 'no GPU'} instead of {', '.join(expected) or 'none'}.",
                observed,
            )
        return Outcome(Status.APPLIED, f"TensorFlow uses {', '.join(visible) or 'no GPU'}.", observed)

    def undo(self, context: Context) -> bool:
        former = context.saved.pop(self.name, None)
        if former is None or context.closed(self.closes_at) is not None:
            return False
        context.tensorflow.config.set_visible_devices(former, "GPU")
        return True
