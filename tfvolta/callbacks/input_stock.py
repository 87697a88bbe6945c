"""How many batches are held for the steps that wait for nothing, and the time of those steps."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

_HELD_SECONDS = 2.0  # steps that are held take about so long, data included
_MOST_HELD = 64
_FEW_HELD = 4  # where nobody knows how many batches are left
# Batches that a strategy's or a device's own threads may fetch before or while they are told to hold some.
AHEAD = 2
_BUFFERED = 8
_UNKNOWN_AXIS = 256  # for the size of a batch whose shape leaves an axis open

Mark = tuple[float, int, float]  # time, position in the epoch, and seconds for which batches were waited for


@dataclasses.dataclass(frozen=True)
class Room:
    """What decides how many batches are held.

    Attributes:
        per_call: Batches in one call of the train function.
        left: Batches that are left of the epoch; None where that is not known.
        step_seconds: What a step takes.
        most: Batches that fit into memory.
        ahead: Whether threads of a strategy or a device fetch ahead.
    """

    per_call: int
    left: Optional[int]
    step_seconds: float
    most: int
    ahead: bool

    def batches(self) -> int:
        """About two seconds of steps, whole calls, and half of what is left of the epoch at most; 0 for too few."""
        least = 2 * self.per_call + (_BUFFERED if self.ahead else 0)
        wanted = max(least, min(_MOST_HELD, math.ceil(_HELD_SECONDS / max(self.step_seconds, 1e-6))))
        if self.left is None:
            wanted = min(wanted, max(_FEW_HELD, least))
        else:
            left = self.left - (AHEAD + _BUFFERED if self.ahead else 0)
            wanted = min(wanted, max(left // 2, min(left, least)))
        size = min(wanted, self.most) // self.per_call * self.per_call
        return size if size >= (least if self.ahead else max(2, self.per_call)) else 0


class Window:
    """Steps on a stock: from when it was asked for until its last batch was trained."""

    def __init__(self, since: Mark, size: int):
        self.since, self.size = since, size
        self.asked_at, self.start, _ = since
        self.end = self.start + size
        self.began: Optional[float] = None


class Total:
    """Seconds, steps and seconds waited of steps as they are; ``since`` while they are counted."""

    def __init__(self) -> None:
        self.seconds = self.waited = 0.0
        self.steps = 0
        self.since: Optional[Mark] = None

    def stop(self, now: Mark) -> None:
        """Adds what was counted up to now."""
        if self.since is not None and now[1] > self.since[1]:
            self.seconds += now[0] - self.since[0]
            self.steps += now[1] - self.since[1]
            self.waited += now[2] - self.since[2]
        self.since = None


def most_held(spec: Any, held_bytes: int) -> int:
    """Batches of an element spec that fit into so many bytes; open axes are taken for long ones."""
    import tensorflow as tf

    parts = [part for part in tf.nest.flatten(spec) if hasattr(part, "shape") and hasattr(part, "dtype")]
    sizes = [
        math.prod(_UNKNOWN_AXIS if size is None else size for size in part.shape) * part.dtype.size
        for part in parts
        if part.shape.rank is not None
    ]
    return int(held_bytes // max(1, sum(sizes)))
