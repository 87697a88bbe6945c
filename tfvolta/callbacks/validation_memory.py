"""Looks whether validation needs more memory than training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.memory.validation_peak import ValidationPeak

if TYPE_CHECKING:
    from tfvolta.callbacks.device_memory import DeviceMemory
    from tfvolta.session import Session

_NO_GPU = "TensorFlow has no GPU in this process"
_NO_STATISTICS = "the allocator keeps no statistics"


class ValidationMemory(Callback):
    """Compares the peak of each GPU's memory before and after the first evaluation of a fit.

    Where a device has no figures (a CPU, or ``cuda_malloc_async`` in some versions) None and the reason are recorded.

    Args:
        session: Takes the records into the evidence of a run.
        memory: Has the peak of the first step, where it starts the peak anew after it.

    Attributes:
        peaks: What was seen, by device; None where a device has no figures.
        unavailable: Why there are none, by device; ``all`` where there is no GPU.
    """

    def __init__(self, session: Optional[Session] = None, memory: Optional[DeviceMemory] = None):
        super().__init__()
        self.peaks: dict[str, Optional[ValidationPeak]] = {}
        self.unavailable: dict[str, str] = {}
        self._session = session
        self._memory = memory
        self._trained = self._done = False
        self._before: dict[str, Any] = {}

    def on_train_begin(self, logs: Logs = None) -> None:
        """Forgets an earlier fit."""
        self.peaks, self.unavailable = {}, {}
        self._trained = self._done = False

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes that the training has a peak."""
        self._trained = True

    def on_test_begin(self, logs: Logs = None) -> None:
        """Reads the training's peak."""
        if self._trained and not self._done:
            self._before = _figures()

    def on_test_end(self, logs: Logs = None) -> None:
        """Compares, once a fit."""
        if not self._trained or self._done:
            return
        self._done = True
        if not self._before:
            self.unavailable["all"] = _NO_GPU
        batch = self.bridge.validation_batch(self.model)
        after = _figures()
        for device, before in self._before.items():
            found = after.get(device)
            if before is None or found is None:
                self.peaks[device], self.unavailable[device] = None, _NO_STATISTICS
                continue
            first = self._first_peak(device)
            training, validation = max(first, before["peak_bytes"]), max(first, found["peak_bytes"])
            self.peaks[device] = ValidationPeak(device, training, validation, before["current_bytes"], batch)
        self._tell()

    def summary(self) -> dict[str, Any]:
        """What was seen, as JSON values."""
        peaks = {device: None if peak is None else peak.to_json() for device, peak in self.peaks.items()}
        return {"peaks": peaks, "unavailable": dict(self.unavailable)}

    def _first_peak(self, device: str) -> int:
        first = None if self._memory is None else self._memory.first.get(device)
        return 0 if first is None else first["peak_bytes"]

    def _tell(self) -> None:
        if self._session is None:
            return
        self._session.measured("validation_memory", self.summary())
        for peak in self.peaks.values():
            if peak is not None and peak.growth_bytes:
                self._session.recorder.warned(str(peak))


def _figures() -> dict[str, Any]:
    from tfvolta.bridge.allocator_figures import gpu_figures

    return gpu_figures()
