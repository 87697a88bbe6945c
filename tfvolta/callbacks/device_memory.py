"""GPU memory in use and at its peak, as TensorFlow's allocator counts it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional

from tfvolta.bridge.runtime import own_devices
from tfvolta.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from tfvolta.session import Session


class DeviceMemory(Callback):
    """Records the current and peak memory of each GPU at the end of each epoch.

    The peak of the first step, in which XLA compiles and algorithms are tried, is kept apart from that of the others;
    for this the peak starts anew after it.

    Where the allocator keeps no statistics (a CPU, or ``cuda_malloc_async`` in some versions) it records None and the
    reason, once, and training goes on.

    Args:
        reset_at_start: Start the peak anew when a fit begins and after its first step, where TensorFlow can.
        session: Takes the records into the evidence of a run.

    Attributes:
        records: One mapping per epoch: ``epoch`` and ``devices``, which maps ``GPU:0`` to ``{"current_bytes",
            "peak_bytes"}`` or to None.
        first: Memory of each device after the first call of the train function, in the same form.
        unavailable: Why a device has no figures, by device; ``all`` where there is no GPU.
    """

    def __init__(self, reset_at_start: bool = True, session: Optional[Session] = None):
        super().__init__()
        self.records: list[dict[str, Any]] = []
        self.first: dict[str, Optional[dict[str, int]]] = {}
        self.unavailable: dict[str, str] = {}
        self._reset_at_start = reset_at_start
        self._session = session
        self._devices: list[str] = []

    @property
    def steady(self) -> dict[str, Optional[int]]:
        """Highest peak of each GPU after the first step, as far as the epochs have ended; None where unknown."""
        return _highest(record["devices"] for record in self.records)

    def summary(self) -> dict[str, Any]:
        """Highest peak per GPU in bytes, None where unknown; the records; and why figures are missing. JSON values."""
        return {
            "peak_bytes": _highest([self.first, *(record["devices"] for record in self.records)]),
            "first_step_peak_bytes": _highest([self.first]),
            "unavailable": dict(self.unavailable),
            "records": list(self.records),
        }

    def on_train_begin(self, logs: Logs = None) -> None:
        """Finds the GPUs and starts their peaks anew."""
        self.records = []
        self.first = {}
        self.unavailable = {}
        self._devices = _gpus()
        if not self._devices:
            self.unavailable["all"] = "TensorFlow has no GPU in this process"
        self._start_anew()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Reads the first step's peak, once, and starts it anew for the others."""
        if self._devices and not self.first:
            self.first = {device: self._info(device) for device in self._devices}
            self._start_anew()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Reads the allocator's counters; this does not wait for the device."""
        devices = {device: self._info(device) for device in self._devices}
        known = {device: info for device, info in devices.items() if info is not None}
        before = [info["peak_bytes"] for info in self.first.values() if info is not None]
        if known and not any(before) and not any(info["peak_bytes"] for info in known.values()):
            # After training on a GPU its peak is not zero; one idle GPU beside a busy one is.
            reason = "the allocator reports a peak of 0 bytes after training: it keeps no statistics"
            self.unavailable.update(dict.fromkeys(known, reason))
            devices.update(dict.fromkeys(known))
            self.first.update(dict.fromkeys(known))
        self.records.append({"epoch": epoch, "devices": devices})
        if self._session is not None:
            self._session.measured("memory", self.summary())

    def _start_anew(self) -> None:
        if not self._reset_at_start:
            return
        for device in self._devices:
            try:
                _tensorflow().config.experimental.reset_memory_stats(device)
            except Exception as error:  # the allocator decides what it raises, and training must go on
                self.unavailable.setdefault(f"{device} reset", _reason(error))

    def _info(self, device: str) -> Optional[dict[str, int]]:
        if device in self.unavailable:
            return None
        try:
            info = _tensorflow().config.experimental.get_memory_info(device)
            return {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"])}
        except Exception as error:  # the allocator decides what it raises, and training must go on
            self.unavailable[device] = _reason(error)
            return None


def _highest(found: Iterable[Mapping[str, Optional[Mapping[str, int]]]]) -> dict[str, Optional[int]]:
    """The highest peak of each device; None for one of which none is known."""
    peaks: dict[str, Optional[int]] = {}
    for devices in found:
        for device, info in devices.items():
            known = [n for n in (peaks.get(device), info["peak_bytes"] if info else None) if n is not None]
            peaks[device] = max(known) if known else None
    return peaks


def _tensorflow() -> Any:
    return sys.modules["tensorflow"]  # a model is being trained, so it is there


def _gpus() -> list[str]:
    """Logical GPUs as ``GPU:0``, the form that the memory functions take."""
    gpus = own_devices(_tensorflow().config.list_logical_devices("GPU"))
    return [device.name.split("device:", 1)[1] for device in gpus]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
