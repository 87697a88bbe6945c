"""How fast a running fit is beside an earlier one: windows of steps, and what six of them say."""

from __future__ import annotations

import collections
import dataclasses
from typing import Optional

from tfvolta.measure.exact import sign_interval

# Six times, of which all must be slower, say so with 96.9 %; the sign test has no such interval of fewer.
WINDOWS = 6


@dataclasses.dataclass(frozen=True)
class PaceState:
    """The latest windows over the baseline's rate.

    Attributes:
        ratio: Median.
        low: Lower end of the interval.
        high: Upper end.
        confidence: What the interval has.
        windows: How many.
    """

    ratio: float
    low: float
    high: float
    confidence: float
    windows: int


class Pace:
    """Times windows of steps, from batch numbers and a clock that are given to it.

    A batch costs an addition and a comparison. Windows reach over epochs, without what lies between them; one in which
    the train step was traced is left out. Where calls return before the device has finished, a window looks
    shorter than it was, never longer: the floor is then reported late, and not by mistake.

    Args:
        every_steps: Steps of a window.
        warmup_steps: First steps of a fit that count in none.
    """

    def __init__(self, every_steps: int, warmup_steps: int):
        self._every, self._warmup = every_steps, warmup_steps
        self.rates: collections.deque[float] = collections.deque(maxlen=WINDOWS)
        self.start_fit()

    def start_fit(self) -> None:
        """Forgets the former fit."""
        self.rates.clear()
        self._left = self._warmup
        self._steps = 0
        self._seconds = 0.0
        self._since: Optional[float] = None
        self._upto = 0
        self._due = 0

    def start_epoch(self, now: float) -> None:
        """The clock goes on, at batch 0."""
        self._since, self._upto = now, 0
        self._due = self._every - self._steps

    def skip(self, batches: int) -> None:
        """So many batches of the epoch were passed over before its first."""
        self._upto += batches
        self._due += batches

    def is_due(self, batches: int) -> bool:
        """Whether the clock has to be read after so many batches of the epoch."""
        return bool(self._left) or batches >= self._due

    def drop_last(self) -> None:
        """Leaves the window out that ended last: something was traced in it."""
        if self.rates:
            self.rates.pop()

    def ended(self, batches: int, now: float) -> bool:
        """So many batches of the epoch have ended; whether a window is full."""
        new = batches - self._upto
        if self._left:
            self._left = max(0, self._left - new)
            self._upto, self._since = batches, now
            self._due = batches + self._every
            return False
        if self._steps + new < self._every:
            return False
        self._take(batches, now)
        rate = self._steps / self._seconds if self._seconds > 0 else 0.0
        if rate:
            self.rates.append(rate)
        self._steps, self._seconds = 0, 0.0
        self._due = batches + self._every
        return True

    def pause(self, batches: int, now: float) -> None:
        """The epoch's training has ended; what follows is not timed."""
        if self._since is not None and not self._left:
            self._take(batches, now)
        self._since = None

    def _take(self, batches: int, now: float) -> None:
        self._steps += batches - self._upto
        self._seconds += now - (self._since if self._since is not None else now)
        self._upto, self._since = batches, now

    def state(self, baseline: float) -> Optional[PaceState]:
        """What the latest windows say; None where there are fewer than six.

        Args:
            baseline: Steps a second of the earlier fit.
        """
        if len(self.rates) < WINDOWS:
            return None
        found = sign_interval([rate / baseline for rate in self.rates])
        return PaceState(found.estimate, found.low, found.high, found.confidence, len(self.rates))
