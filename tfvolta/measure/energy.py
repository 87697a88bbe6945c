"""Energy of GPUs, from the counter that NVML keeps on Volta and later."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.facts.gpu import import_nvml, read_gpus
from tfvolta.facts.visibility import visible_gpus


class EnergyCounter:
    """The energy that some GPUs have used since the driver was loaded.

    The counter is that of the whole card, whoever uses it. Source: NVIDIA Management Library API reference,
    ``nvmlDeviceGetTotalEnergyConsumption``: millijoules, Volta or newer.

    Attributes:
        reason: Why nothing is read; empty where something is.
    """

    def __init__(self, nvml: Optional[Any], indices: tuple[int, ...], reason: str = ""):
        """Opens NVML.

        Args:
            nvml: The module ``pynvml``; None without it.
            indices: Of the GPUs, as NVML numbers them.
            reason: Why nothing can be read.
        """
        self.reason = reason
        self._nvml = nvml
        self._handles: list[Any] = []
        if nvml is None or not indices:
            self.reason = self.reason or "this machine has no GPU"
            return
        try:
            nvml.nvmlInit()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
        except Exception as error:  # no driver, or one that does not match
            self.reason = f"NVML cannot start ({error})"

    @classmethod
    def of_process(cls, environ: Mapping[str, str]) -> EnergyCounter:
        """The counter of the GPUs that CUDA_VISIBLE_DEVICES leaves to this process."""
        notes: list[str] = []
        nvml = import_nvml(notes)
        if nvml is None:
            return cls(None, (), notes[-1] if notes else "")
        gpus = read_gpus(environ, notes, nvml).gpus
        return cls(nvml, visible_gpus(gpus, environ.get("CUDA_VISIBLE_DEVICES")))

    def joules(self) -> Optional[float]:
        """Energy of all of them so far; None where one does not count it."""
        if not self._handles or self._nvml is None:
            return None
        try:
            used = [float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) for handle in self._handles]
        except Exception as error:  # older cards, and drivers that stop answering
            self.reason = f"NVML does not count the energy ({error})"
            self._handles = []
            return None
        return sum(used) / 1000
