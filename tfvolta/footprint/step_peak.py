"""The peak of a step's memory as it can be foretold once the step was traced or compiled, against the measured one.

Of a compiled step XLA's own buffer assignment is known; of another one its operations with the shapes that it runs on.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.footprint.buffer_assignment import Buffers

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class StepPeak:
    """One device while a step runs, in bytes.

    Attributes:
        source: What foretells it: ``XLA's buffer assignment`` or ``the traced step``.
        parts: What it is made of, by name.
        variables: Weights and the optimiser's variables, which are among the parts.
        program: XLA's name of the compiled step; empty where there is none.
        device: Such as ``GPU:0``; None where no device counts its memory.
        resident: In use after the first step: variables, and what else stays on the device.
        first: Peak up to the end of the first step, in which XLA compiles and algorithms are tried.
        steady: Peak of the steps after it.
    """

    source: str
    parts: Mapping[str, int]
    variables: int
    program: str = ""
    device: Optional[str] = None
    resident: Optional[int] = None
    first: Optional[int] = None
    steady: Optional[int] = None

    @classmethod
    def of_program(cls, program: str, buffers: Buffers, variables: int) -> StepPeak:
        """Of a step that XLA has compiled."""
        return cls("XLA's buffer assignment", dataclasses.asdict(buffers), variables, program)

    @classmethod
    def of_trace(cls, held: int, scratch: int, variables: int) -> StepPeak:
        """Of a step that is not compiled.

        Args:
            held: Tensors at the worst moment, with what cuDNN keeps of recurrent layers.
            scratch: Scratch memory of a convolution, as a guess.
            variables: Weights and the optimiser's variables.
        """
        return cls("the traced step", {"variables": variables, "tensors": held, "scratch": scratch}, variables)

    @property
    def beside(self) -> int:
        """What stays on the device and is no part of the step: averaged weights, data, another model."""
        return max(0, (self.resident or 0) - self.variables)

    @property
    def predicted(self) -> int:
        """The peak that is foretold: the parts, and what stays beside them."""
        return sum(self.parts.values()) + self.beside

    def measured(self, device: str, resident: Optional[int], first: Optional[int], steady: int) -> StepPeak:
        """The same with what a device has counted."""
        return dataclasses.replace(self, device=device, resident=resident, first=first, steady=steady)

    def error_percent(self, measured: Optional[int]) -> Optional[float]:
        """By how much the prediction misses a measured peak; negative where it is too small."""
        return None if not measured else 100.0 * (self.predicted / measured - 1)

    def __str__(self) -> str:
        """One line for the report."""
        parts = ", ".join(f"{name} {_size(size)}" for name, size in [*self.parts.items(), ("beside it", self.beside)])
        said = f"{_size(self.predicted)} predicted by {self.source} ({parts})"
        error = self.error_percent(self.steady)
        if self.steady is None or error is None:
            return f"{said}; no measured peak"
        compared = f"{said}; {_size(self.steady)} measured on {self.device}: {error:+.1f} %"
        if self.first is not None and self.first > self.steady:
            compared += f"; {_size(self.first)} in the first step, in which algorithms are tried"
        return compared

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the sums."""
        return {
            "source": self.source,
            "program": self.program or None,
            **{f"{name}_bytes": size for name, size in self.parts.items()},
            "variables_bytes": self.variables,
            "resident_bytes": self.resident,
            "beside_bytes": self.beside,
            "predicted_peak_bytes": self.predicted,
            "device": self.device,
            "first_step_peak_bytes": self.first,
            "steady_peak_bytes": self.steady,
            "error_percent": _rounded(self.error_percent(self.steady)),
            "first_step_error_percent": _rounded(self.error_percent(self.first)),
        }


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 2)


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB // 100 else f"{size / 2**20:.1f} MiB"
