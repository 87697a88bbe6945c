"""What a dynamic loss scale keeps to; plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

from tfvolta.errors import Problem


@dataclasses.dataclass(frozen=True)
class ScaleBounds:
    """What a dynamic loss scale keeps to; see ``tfvolta.bridge.scale_control``.

    Attributes:
        floor: The scale does not fall below it. Without one, gradients that are never finite drive the scale to zero.
        ceiling: It does not grow above it; None where float32's range is the limit.
        hysteresis: Overflows until the scale halves; 1 as in plain Keras.
    """

    floor: float = 1.0
    ceiling: Optional[float] = None
    hysteresis: int = 1

    def limited(self, scale: float) -> float:
        """A scale within the bounds."""
        return min(max(scale, self.floor), float("inf") if self.ceiling is None else self.ceiling)

    def problems(self, initial: Any) -> list[Problem]:
        """What cannot be used of the bounds themselves, and with a first scale."""
        given = dataclasses.asdict(self)
        wrong = {name: value for name, value in given.items() if not is_positive(value)}
        wrong = {name: value for name, value in wrong.items() if name != "ceiling" or value is not None}
        if wrong:
            return [
                Problem(f"bounds.{name}", "a positive number", repr(value), fix=f"ScaleBounds({name}=1)")
                for name, value in wrong.items()
            ]
        ordered = self.limited(self.floor) == self.floor and (not is_positive(initial) or self._holds(initial))
        if ordered or self == ScaleBounds():
            return []
        received = f"floor {self.floor:g}, initial {initial:g}, ceiling {self.ceiling}"
        why = "the scale begins with initial and stays between the two"
        return [Problem("bounds", "floor <= initial <= ceiling", received, why, f"initial={self.floor:g}")]

    def _holds(self, scale: float) -> bool:
        return self.limited(scale) == scale


KERAS_BOUNDS = ScaleBounds()  # those of plain Keras 2


def is_positive(value: Any) -> bool:
    """Whether a value is a finite number above zero."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0
