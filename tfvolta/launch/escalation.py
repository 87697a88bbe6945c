"""How workers that do not end by themselves are ended: a signal after a while, then SIGKILL."""

from __future__ import annotations

import signal
import time
from typing import Callable, Optional


class Escalation:
    """Signals that are due one after another.

    Args:
        grace_seconds: Time between the first signal and SIGKILL.
        clock: Seconds that never go back.

    Attributes:
        is_on: Whether the end has begun.
    """

    def __init__(self, grace_seconds: float, clock: Callable[[], float] = time.monotonic):
        self.is_on = False
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._stages: list[tuple[float, int]] = []

    def begin(self, seconds: float, number: int = signal.SIGTERM) -> None:
        """A signal is due in so many seconds, and SIGKILL after the grace time; stages that were due are replaced."""
        now = self._clock()
        self.is_on = True
        self._stages = [(now + seconds, number), (now + seconds + self._grace_seconds, signal.SIGKILL)]

    def sooner(self, seconds: float) -> None:
        """Brings the next stage forward; one that comes earlier anyway stays."""
        if self._stages:
            moment, number = self._stages[0]
            self._stages[0] = (min(moment, self._clock() + seconds), number)

    @property
    def wait_seconds(self) -> Optional[float]:
        """Time until the next stage; None where there is none."""
        return max(0.0, self._stages[0][0] - self._clock()) if self._stages else None

    def due(self) -> Optional[int]:
        """The signal that is due now, or None. SIGKILL comes again: a process in a disk's hands dies late."""
        if not self._stages or self._stages[0][0] > self._clock():
            return None
        _, number = self._stages.pop(0)
        if number == signal.SIGKILL:
            self._stages = [(self._clock() + self._grace_seconds, number)]
        return number
