"""The clock around each call of the train function; the only code that runs for every batch."""

from __future__ import annotations

from time import perf_counter
from typing import Callable

# A call this many times slower than a normal one is worth asking whether the train step was traced again.
_SLOW = 3.0
WARM_UP = "warm-up"
TRACED = "traced"


class CallClock:
    """Seconds of each call in one epoch, in a ring that is allocated once; reads no logs and waits for no device.

    Args:
        capacity: Calls that are kept; of a longer epoch the latest.
        traces: Says how often the train function was traced so far. Asked after slow calls only.

    Attributes:
        calls: Calls that ended in this epoch.
        last_batch: Number that Keras gave with the last end.
        ended: When the last call ended; 0.0 before the first.
        set_aside: Calls left out of the figures by their index in the epoch: ``(seconds, reason)``.
        set_aside_seconds: Wall time from the begin of each call set aside to the begin of the next.
    """

    def __init__(self, capacity: int, traces: Callable[[], int]):
        self._ring = [0.0] * capacity
        self._capacity = capacity
        self._traces = traces
        self._known_traces = 0
        self._warmup_left = 0
        self._slow_above = 0.0
        self.start_epoch()

    def start_fit(self, warmup_calls: int) -> None:
        """Starts a fit: its first calls are set aside."""
        self._known_traces = self._traces()
        self._warmup_left = warmup_calls
        self._slow_above = 0.0
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forgets the calls of the last epoch."""
        self.calls = 0
        self.begun_calls = 0
        self.first_batch = 0
        self.last_batch = -1
        self.ended = 0.0
        self.set_aside: dict[int, tuple[float, str]] = {}
        self.set_aside_seconds = 0.0
        self._began = 0.0
        self._aside_since = 0.0

    def begin(self, batch: int = 0) -> None:
        """A call of the train function begins, with this number of its first batch in the epoch."""
        now = self._began = perf_counter()
        if not self.begun_calls:
            self.first_batch = batch
        self.begun_calls += 1
        if self._aside_since:
            self.set_aside_seconds += now - self._aside_since
            self._aside_since = 0.0

    def end(self, batch: int) -> None:
        """A call of the train function ended."""
        self.ended = now = perf_counter()
        self.last_batch = batch
        call = self.calls
        self.calls = call + 1
        seconds = now - self._began
        self._ring[call % self._capacity] = seconds
        if seconds > self._slow_above:
            self._look_at(call, seconds)

    def end_epoch(self, now: float) -> None:
        """Closes the account of a last call that was set aside."""
        if self._aside_since:
            self.set_aside_seconds += now - self._aside_since
            self._aside_since = 0.0

    def kept(self) -> list[tuple[int, float]]:
        """Index and seconds of the calls still in the ring, in order."""
        first = max(0, self.calls - self._capacity)
        return [(call, self._ring[call % self._capacity]) for call in range(first, self.calls)]

    def expect(self, seconds: float) -> None:
        """Takes the duration of a normal call, so that only slow ones are looked at."""
        self._slow_above = 0.0 if self._warmup_left else _SLOW * seconds

    def _look_at(self, call: int, seconds: float) -> None:
        traces = self._traces()
        traced = traces != self._known_traces
        self._known_traces = traces
        if traced:
            self._set_aside(call, seconds, TRACED)
        elif self._warmup_left:
            self._set_aside(call, seconds, WARM_UP)
        elif not self._slow_above:
            self._slow_above = _SLOW * seconds
        if self._warmup_left:
            self._warmup_left -= 1

    def _set_aside(self, call: int, seconds: float, reason: str) -> None:
        self.set_aside[call] = (seconds, reason)
        self._aside_since = self._began
