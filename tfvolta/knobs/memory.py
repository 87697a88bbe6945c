"""How much GPU memory TensorFlow takes: growth instead of preallocation, and a hard limit."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

FORCE = "TF_FORCE_GPU_ALLOW_GROWTH"
_ASYNC = "cuda_malloc_async"
_MOVE_TO = "call tfvolta.build_strategy(config) before the first tensor, model or optimizer is made"
_NO_GPU = "TensorFlow sees no GPU."


class MemoryGrowth(Knob):
    """Takes GPU memory as it is needed (true) or nearly all of it at the start (false), on all visible GPUs alike.

    Binds: when the eager context creates the GPU devices.
    """

    name = "memory_growth"
    keys = ("devices.memory_growth",)
    phase = Phase.DEVICES
    closes_at = Moment.CONTEXT_INITIALIZED
    asks_tensorflow = True
    move_to = _MOVE_TO
    techniques = ("M11", "M14")

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "This machine has no GPU whose memory could grow.")
        if config.get("devices.allocator") == _ASYNC:
            return Forecast(
                Status.NO_EFFECT,
                f"devices.allocator: {_ASYNC} replaces the pool that growth is a setting of; leave memory_growth out.",
            )
        how = "takes memory as it is needed" if value else "takes nearly all memory at the start, which is its default"
        return Forecast(
            Status.APPLIED, f"TensorFlow {how}, on every visible GPU alike ({FORCE} in the environment would win)."
        )

    def apply(self, value: Any, context: Context) -> None:
        experimental = context.tensorflow.config.experimental
        gpus = context.tensorflow.config.get_visible_devices("GPU")
        context.saved.setdefault(self.name, {gpu: experimental.get_memory_growth(gpu) for gpu in gpus})
        for gpu in gpus:
            experimental.set_memory_growth(gpu, value)

    def verify(self, value: Any, context: Context) -> Outcome:
        config = context.tensorflow.config
        gpus = config.get_visible_devices("GPU")
        if not gpus:
            return Outcome(Status.NOT_APPLICABLE, _NO_GPU, {"growth": {}})
        growth = {gpu.name: config.experimental.get_memory_growth(gpu) for gpu in gpus}
        forced = context.environ.get(FORCE)
        observed = {"growth": growth, FORCE: forced}
        # TensorFlow accepts these two words only; it logs anything else and goes on.
        if forced in ("true", "false") and (forced == "true") != value:
            return Outcome(
                Status.NO_EFFECT, f"{FORCE}={forced} overrides tf.config in both directions; unset it.", observed
            )
        if context.environ.get("TF_GPU_ALLOCATOR") == _ASYNC:
            return Outcome(
                Status.NO_EFFECT, f"TF_GPU_ALLOCATOR={_ASYNC} replaces the pool that growth is a setting of.", observed
            )
        wrong = [name for name, state in growth.items() if bool(state) != value]
        if wrong:
            return Outcome(Status.NO_EFFECT, f"Memory growth is {not value} on {', '.join(wrong)}.", observed)
        return Outcome(Status.APPLIED, f"Memory growth is {value} on {', '.join(growth)}.", observed)

    def undo(self, context: Context) -> bool:
        former = context.saved.pop(self.name, None)
        if former is None or context.closed(self.closes_at) is not None:
            return False
        for gpu, value in former.items():
            context.tensorflow.config.experimental.set_memory_growth(gpu, bool(value))
        return True


class MemoryLimit(Knob):
    """Bounds the GPU memory of this process on every visible GPU.

    Binds: when the eager context creates the GPU devices.
    """

    name = "memory_limit"
    keys = ("devices.memory_limit_mb",)
    phase = Phase.DEVICES
    closes_at = Moment.CONTEXT_INITIALIZED
    asks_tensorflow = True
    move_to = _MOVE_TO
    techniques = ("M11",)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        if not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "This machine has no GPU whose memory could be bounded.")
        small = [gpu for gpu in facts.gpus if gpu.memory_mb < value]
        if small:
            return Forecast(
                Status.NO_EFFECT,
                f"GPU {small[0].index} ({small[0].name}) has {small[0].memory_mb} MiB, less than the limit of {value}"
                " MiB.",
            )
        return Forecast(
            Status.APPLIED,
            f"TensorFlow's pool ends at {value} MiB on every visible GPU; cuDNN's and CUDA's own memory comes on top.",
        )

    def apply(self, value: Any, context: Context) -> None:
        config = context.tensorflow.config
        gpus = config.get_visible_devices("GPU")
        context.saved.setdefault(self.name, {gpu: config.get_logical_device_configuration(gpu) for gpu in gpus})
        for gpu in gpus:
            config.set_logical_device_configuration(gpu, [config.LogicalDeviceConfiguration(memory_limit=value)])

    def verify(self, value: Any, context: Context) -> Outcome:
        config = context.tensorflow.config
        gpus = config.get_visible_devices("GPU")
        if not gpus:
            return Outcome(Status.NOT_APPLICABLE, _NO_GPU, {"limits_mb": {}})
        if context.closed(Moment.CONTEXT_INITIALIZED) is not None:
            limits = _running_limits_mb()
            where = "the running devices have"
        else:
            limits = {gpu.name: _asked_mb(config.get_logical_device_configuration(gpu)) for gpu in gpus}
            where = "the devices will be created with"
        observed = {"limits_mb": limits}
        if len(limits) < len(gpus) or any(limit is None or limit > value for limit in limits.values()):
            return Outcome(Status.NO_EFFECT, f"Asked for {value} MiB, and {where} {limits}.", observed)
        return Outcome(Status.APPLIED, f"Asked for {value} MiB, and {where} {limits}.", observed)

    def undo(self, context: Context) -> bool:
        former = context.saved.pop(self.name, None)
        if former is None or context.closed(self.closes_at) is not None:
            return False
        from tfvolta.bridge.tensorflow_private import forget_logical_devices

        for gpu, devices in former.items():
            if devices is None:
                forget_logical_devices(gpu)
            else:
                context.tensorflow.config.set_logical_device_configuration(gpu, devices)
        return True


def _asked_mb(devices: Any) -> Optional[float]:
    return devices[0].memory_limit if devices else None


def _running_limits_mb() -> dict[str, Optional[float]]:
    from tfvolta.bridge.tensorflow_private import device_memory_limits

    return {name: size / 2**20 for name, size in device_memory_limits().items() if name.startswith("GPU:")}
