"""Figures of gradients as the bridges hand them out: plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
import math
from typing import Iterable, Optional

FLOAT16_SUBNORMAL = 2.0**-24  # the smallest magnitude that float16 holds
FLOAT16_NORMAL = 2.0**-14  # the smallest that it holds in full precision
FLOAT16_LARGEST = 65504.0


@dataclasses.dataclass(frozen=True)
class GradientFigures:
    """What was seen of one gradient, or of several together.

    Attributes:
        elements: Numbers in it.
        largest: Largest magnitude of a finite one, in true size.
        squares: Sum of the squares of finite ones, each divided by ``largest``; so no square overflows or vanishes.
        zeros: Exact zeros; what float16 could not hold on the way has become one.
        underflow: Numbers that are not zero and that float16 could not hold at the present loss scale.
        subnormal: Numbers that it would hold in part of its precision.
        overflow: Finite numbers that would be infinite in float16 at the present loss scale.
        non_finite: Infinities and NaN.
    """

    elements: int
    largest: float
    squares: float
    zeros: int
    underflow: int
    subnormal: int
    overflow: int
    non_finite: int

    @property
    def norm(self) -> float:
        """Euclidean norm of the finite numbers, in true size."""
        return self.largest * math.sqrt(self.squares)

    def to_json(self) -> dict[str, float]:
        """Norm and counts, and as shares of all numbers what is read as a share."""
        whole = max(1, self.elements)
        return {
            "norm": self.norm,
            "largest": self.largest,
            "elements": self.elements,
            "zero_share": self.zeros / whole,
            "underflow_share": self.underflow / whole,
            "subnormal_share": self.subnormal / whole,
            "overflow": self.overflow,
            "non_finite": self.non_finite,
        }


def together(figures: Iterable[GradientFigures]) -> GradientFigures:
    """The figures of several gradients as those of one."""
    held = list(figures)
    largest = max((each.largest for each in held), default=0.0)
    squares = sum(each.squares * (each.largest / largest) ** 2 for each in held) if largest else 0.0
    names = ("zeros", "underflow", "subnormal", "overflow", "non_finite")
    counts = {name: sum(getattr(each, name) for each in held) for name in names}
    return GradientFigures(sum(each.elements for each in held), largest, squares, **counts)


@dataclasses.dataclass(frozen=True)
class GradientSample:
    """The gradients of one step, summed over replicas and ranks and averaged over a window, before any clipping.

    Attributes:
        step: Batches of the fit up to and with this one.
        loss_scale: In that step; None where the loss was not scaled, and float16 is asked about the true size.
        gradients: Path of the layer that owns the variable, and the figures; a layer has one entry for each variable.
    """

    step: int
    loss_scale: Optional[float]
    gradients: tuple[tuple[str, GradientFigures], ...]
