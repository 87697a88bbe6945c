"""The peak of the running step as it is foretold once it has run, against the measured one; and GPUs' pools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.footprint.convolution_scratch import scratch_of
from tfvolta.footprint.step_peak import StepPeak
from tfvolta.memory.fragments import Fragments, fragments_of, why_unknown
from tfvolta.memory.workspace import limit_mb

if TYPE_CHECKING:
    from tfvolta.session import Session

_LOOK_AFTER = 2  # calls: the pool has found its form, and the time is warm-up, which no throughput counts


class StepMemory(Callback):
    """Foretells the peak of the running fit's step, once, and holds it against the measured one.

    Of a compiled step XLA's own buffer assignment is read. Nothing is compiled for it: TensorFlow's profiler writes
    down the programs that are loaded, between two steps, without a trace. Of another step the trace that runs is read,
    with the shapes and kernels that it has on this machine. In the same moment each GPU's pool says how broken up its
    free memory is. A figure that cannot be had is None with the reason; a profile that somebody else takes is left
    alone.

    Args:
        memory: Measures the peaks; in the same fit, before this one.
        session: Takes the records into the evidence of a run.

    Attributes:
        peak: What was foretold and measured; None where nothing could be, and before the second step has ended.
        fragments: The pool of each GPU.
        reason: Why ``peak`` is None.
        seconds: What the look has cost.
    """

    def __init__(self, memory: DeviceMemory, session: Optional[Session] = None):
        super().__init__()
        self.peak: Optional[StepPeak] = None
        self.fragments: dict[str, Fragments] = {}
        self.reason = ""
        self.seconds = 0.0
        self._memory = memory
        self._session = session
        self._calls = 0
        self._looked = False
        self._refused = ""

    def summary(self) -> dict[str, Any]:
        """What is known so far, as JSON values: a line for each, and the figures."""
        if not self._looked:
            return {}
        pools = {device: found.to_json() for device, found in self.fragments.items()}
        figures = {**({} if self.peak is None else self.peak.to_json()), "pools": pools, "look_seconds": self.seconds}
        return {
            "peak": f"none predicted: {self.reason}" if self.peak is None else str(self.peak),
            "fragmentation": "; ".join(map(str, self.fragments.values())) or self._why_no_pool(),
            "figures": [figures],
        }

    def on_train_begin(self, logs: Logs = None) -> None:
        """Forgets an earlier fit."""
        self.peak, self.fragments, self.reason, self.seconds = None, {}, "", 0.0
        self._calls, self._looked = 0, False

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Looks, once, between the second step and the next."""
        self._calls += 1
        if self._calls == _LOOK_AFTER:
            self._look()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Compares with the peak so far."""
        if not self._looked:
            self._look()
        if self.peak is not None and self._calls > 1:  # the first call's peak is its own
            self.peak = _measured(self.peak, self._memory)
        if self._session is not None:
            self._session.measured("step_memory", self.summary())

    def _look(self) -> None:
        self._looked = True
        try:
            self._read()
        except Exception as error:  # a figure more, of the insides of several libraries; training must go on
            self.reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"

    def _read(self) -> None:
        compiled = self.bridge.jit(self.model).effective
        if not compiled and "all" in self._memory.unavailable:
            self.reason = f"XLA does not compile this step, and {self._memory.unavailable['all']}"
            return
        found = self.bridge.loaded_memory(self.model)
        self._refused = found.refused
        self.seconds = round(found.seconds, 3)
        self.fragments = fragments_of(found.events)
        if not compiled:
            self._read_trace()
        elif found.buffers is None:
            self.reason = found.reason
        else:
            self.peak = StepPeak.of_program(found.program, found.buffers, self._variables())

    def _variables(self) -> int:
        found = self.bridge.variable_bytes(self.model)
        return found.weights + found.optimizer

    def _read_trace(self) -> None:
        found = self.bridge.traced_memory(self.model, self._rows(), self._resident())
        self.seconds = round(self.seconds + found.seconds, 3)
        if found.held is None:
            self.reason = f"XLA does not compile this step, and {found.reason}"
            return
        setting = None if self._session is None else self._session.config.get("cudnn.workspace_limit_mb")
        scratch = scratch_of(found.step, found.held, limit_mb(setting, os.environ) * 2**20)
        held = found.held if found.pooled is None else found.pooled
        self.peak = StepPeak.of_trace(held, scratch.guess, self._variables())

    def _resident(self) -> Optional[int]:
        """Bytes in use after the first step; None where none counts them or cuda_malloc_async hands memory out."""
        if os.environ.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async":
            return None
        return max((first["current_bytes"] for first in self._memory.first.values() if first), default=None)

    def _rows(self) -> Optional[int]:
        """Rows of a batch, for one replica alone: those of several divide it."""
        data = self.bridge.fit_data(self.model)
        replicas = int(getattr(self.model.distribute_strategy, "num_replicas_in_sync", 1))
        return data.batch if data is not None and replicas == 1 else None

    def _why_no_pool(self) -> str:
        if "all" in self._memory.unavailable:
            return f"not known: {self._memory.unavailable['all']}"
        return f"not known: {self._refused or why_unknown(os.environ.get('TF_GPU_ALLOCATOR'))}"


def _measured(peak: StepPeak, memory: DeviceMemory) -> StepPeak:
    """The comparison with the device whose peak is highest: each replica runs the program on one of its own."""
    steady = {device: bytes_ for device, bytes_ in memory.steady.items() if bytes_ is not None}
    if not steady:
        return peak
    device = max(steady, key=lambda each: steady[each])
    first = memory.first.get(device) or {}
    return peak.measured(device, first.get("current_bytes"), first.get("peak_bytes"), steady[device])
