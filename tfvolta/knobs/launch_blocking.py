"""Synchronous kernel launches, for finding the kernel that fails."""

from __future__ import annotations

from typing import Any

from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.phase import Moment

COST = "-15.5 % throughput (ResNet-50, mixed_float16 without XLA, NVIDIA H200, TensorFlow 2.21; no V100 was available)"


class LaunchBlocking(EnvironmentKnob):
    """Makes every CUDA kernel launch wait for its kernel, so that an error names the right one. It costs speed.

    Binds: when the CUDA driver starts, that is when the physical devices are first listed.
    """

    name = "launch_blocking"
    keys = ("debug.launch_blocking",)
    closes_at = Moment.DEVICES_LISTED
    move_to = "set CUDA_LAUNCH_BLOCKING in the shell, or use `tfvolta run`, before anything lists the GPUs"
    techniques = ("P6",)
    unverifiable = (
        "The CUDA driver reads the variable and has no call that returns it; it was set before the driver started."
    )

    def variables(self, value: Any) -> dict[str, str]:
        return {"CUDA_LAUNCH_BLOCKING": "1" if value else "0"}

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del facts, config
        if not value:
            return "Kernel launches stay asynchronous, which is the default."
        return (
            f"For looking for faults only: every launch waits for its kernel, measured at {COST}. It removes no"
            " pipeline stall."
        )
