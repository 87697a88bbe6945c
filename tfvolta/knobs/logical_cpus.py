"""Several logical devices on one CPU, for trying a strategy without GPUs."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.runtime import own_devices
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class LogicalCpus(Knob):
    """Splits the CPU into logical devices, so that a strategy with several replicas runs on any machine.

    Binds: when the eager context creates the devices. It belongs to the strategy's section and to the devices phase,
    because the strategy needs the devices to exist.
    """

    name = "logical_cpus"
    keys = ("strategy.logical_cpus",)
    phase = Phase.DEVICES
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = "call tfvolta.build_strategy(config) before the first tensor, model or optimizer is made"
    techniques = ("C2",)

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        return Forecast(
            Status.APPLIED,
            f"The CPU ({facts.cpu.cores} cores) shows as {value} devices that share its cores: for trying a strategy,"
            " not for speed.",
        )

    def apply(self, value: Any, context: Context) -> None:
        config = context.tensorflow.config
        cpu = config.list_physical_devices("CPU")[0]
        context.saved.setdefault(self.name, (cpu, config.get_logical_device_configuration(cpu)))
        config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration() for _ in range(value)])

    def verify(self, value: Any, context: Context) -> Outcome:
        config = context.tensorflow.config
        if context.closed(Moment.CONTEXT_INITIALIZED) is not None:
            count = len(own_devices(config.list_logical_devices("CPU")))
        else:
            cpu = config.list_physical_devices("CPU")[0]
            count = len(config.get_logical_device_configuration(cpu) or [None])
        status = Status.APPLIED if count == value else Status.NO_EFFECT
        return Outcome(
            status,
            f"TensorFlow has {count} logical CPU device{'s' * (count > 1)}; {value} were asked for.",
            {"logical_cpus": count},
        )

    def undo(self, context: Context) -> bool:
        saved = context.saved.pop(self.name, None)
        if saved is None or context.closed(self.closes_at) is not None:
            return False
        from tfvolta.bridge.tensorflow_private import forget_logical_devices

        cpu, former = saved
        if former is None:
            forget_logical_devices(cpu)
        else:
            context.tensorflow.config.set_logical_device_configuration(cpu, former)
        return True
