"""The host threads that launch GPU kernels."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Optional

from tfvolta.bridge.runtime import own_devices
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment

_PREFIX = {"gpu_private": "tf_gpu_private", "gpu_shared": "tf_gpu_shared"}
_COMM_LENGTH = 15  # Linux takes 15 characters of a thread's name, and refuses longer ones
# Seen on an NVIDIA H200 with TensorFlow 2.21: the private pool's threads bear no name of their own.
_UNSEEN = (
    "Set before TensorFlow made the GPU devices, which is when it reads it. Nothing shows it: TensorFlow names the pool"
    " tf_gpu_private_0, a character more than Linux takes, and TensorFlow 2.15 names no pool"
)


def data_threads(cores: int, gpus: int) -> int:
    """Threads to leave to tf.data when each GPU has launch threads of its own: one is the least.

    Source: TensorFlow's official ResNet model keeps three cores per GPU out of the input pipeline's pool.
    """
    return max(1, cores - 3 * gpus)


def launch_threads(mode: str) -> int:
    """Threads of this process that serve GPUs in a mode; 0 where there are none."""
    from tfvolta.bridge.runtime import thread_names

    prefix = _PREFIX.get(mode, "")
    names = collections.Counter(thread_names())
    return sum(n for name, n in names.items() if prefix and name.startswith((prefix[:_COMM_LENGTH], prefix[3:])))


def _unseen(forecast: Forecast) -> Forecast:
    """The same forecast, with the outcome that can be known of a pool without a name."""
    return dataclasses.replace(forecast, status=Status.UNVERIFIABLE) if forecast.status is Status.APPLIED else forecast


class GpuThreadMode(EnvironmentKnob):
    """Gives GPU kernel launches threads of their own, so that input work cannot delay them.

    Binds: when the eager context creates the GPU devices.
    """

    name = "gpu_thread_mode"
    keys = ("devices.gpu_thread_mode",)
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = (
        "set TF_GPU_THREAD_MODE (or build the strategy from the config) before the first tensor, model or optimizer is"
        " made"
    )
    techniques = ("K4",)

    def variables(self, value: Any) -> dict[str, str]:
        return {"TF_GPU_THREAD_MODE": str(value)}

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        return _unseen(super().forecast(value, facts, config))

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del config
        if value == "global":
            return "Kernel launches share TensorFlow's common pool, which is the default."
        left = data_threads(facts.cpu.cores, len(facts.gpus))
        return (
            f"Kernel launches get {'a pool per GPU' if value == 'gpu_private' else 'one pool for all GPUs'}; "
            f"a fitting tf.data pool on these {facts.cpu.cores} cores is {left} thread{'s' * (left > 1)}. "
            "Where XLA compiles the step there is little left to schedule."
        )

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        if context.closed(Moment.CONTEXT_INITIALIZED) is None:
            return None
        private, shared = launch_threads("gpu_private"), launch_threads("gpu_shared")
        seen = {"gpu_private_threads": private, "gpu_shared_threads": shared}
        named = {"gpu_private": private, "gpu_shared": shared}
        if named.get(str(value)):
            return Outcome(Status.APPLIED, f"Seen in this process's threads: {private} private, {shared} shared.", seen)
        if any(named.values()):
            return Outcome(
                Status.NO_EFFECT,
                f"The running process has {private} private and {shared} shared GPU threads, so TensorFlow did not take"
                f" {value}.",
                seen,
            )
        return Outcome(Status.UNVERIFIABLE, f"{_UNSEEN}.", seen)


class GpuThreads(EnvironmentKnob):
    """Number of launch threads: per GPU with ``gpu_private``, in all with ``gpu_shared``.

    Binds: when the eager context creates the GPU devices.
    """

    name = "gpu_threads"
    keys = ("devices.gpu_threads",)
    closes_at = Moment.CONTEXT_INITIALIZED
    move_to = (
        "set TF_GPU_THREAD_COUNT (or build the strategy from the config) before the first tensor, model or optimizer is"
        " made"
    )
    techniques = ("K4",)

    def variables(self, value: Any) -> dict[str, str]:
        return {"TF_GPU_THREAD_COUNT": str(value)}

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        forecast = _unseen(super().forecast(value, facts, config))
        mode = config.get("devices.gpu_thread_mode")
        if forecast.status is Status.NOT_APPLICABLE or mode in _PREFIX:
            return forecast
        return Forecast(
            Status.NO_EFFECT,
            f"The count is read only in the modes gpu_private and gpu_shared, and the mode is {mode or 'not set'}; "
            "write devices.gpu_thread_mode: gpu_private.",
        )

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        mode = config.get("devices.gpu_thread_mode")
        return (
            f"{value} launch threads"
            f" {'for each of ' + str(len(facts.gpus)) + ' GPUs' if mode == 'gpu_private' else 'for all GPUs'}."
        )

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        mode = context.config.get("devices.gpu_thread_mode")
        if mode not in _PREFIX:
            return Outcome(
                Status.NO_EFFECT,
                "The count is read only in the modes gpu_private and gpu_shared; write devices.gpu_thread_mode:"
                " gpu_private.",
            )
        if context.closed(Moment.CONTEXT_INITIALIZED) is None:
            return None
        gpus = len(own_devices(context.tensorflow.config.list_logical_devices("GPU"))) if mode == "gpu_private" else 1
        seen, expected = launch_threads(mode), value * gpus
        observed = {"threads": seen, "expected": expected}
        if seen == expected:
            return Outcome(Status.APPLIED, f"{seen} {mode} threads seen in this process.", observed)
        if seen == 0:
            return Outcome(Status.UNVERIFIABLE, f"{_UNSEEN}.", observed)
        return Outcome(Status.NO_EFFECT, f"{seen} {mode} threads seen, {expected} asked for.", observed)
