"""Where the workers of a run stand, as their signs of life tell the launcher."""

from __future__ import annotations

import time
from typing import Callable, Optional, Sequence

from tfvolta.evidence.heartbeat import Heartbeat, read_heartbeats
from tfvolta.evidence.missing import Standstill, standstill

# A worker's own watchdog acts at its limit; where none does, because no thread of it gets on, the launcher does.
_LEAST_MARGIN_SECONDS, _MOST_MARGIN_SECONDS = 2.0, 10.0
# Signs of life come once a second.
_SILENT_SECONDS = 5.0


class Standing:
    """Reads the signs of life of the workers that train.

    Args:
        folder: Where they write them.
        clock: Seconds since 1970.
    """

    def __init__(self, folder: str, clock: Callable[[], float] = time.time):
        self._folder = folder
        self._clock = clock

    def beats(self, names: Sequence[str]) -> tuple[Heartbeat, ...]:
        """What these workers last said."""
        return tuple(beat for beat in read_heartbeats(self._folder) if beat.worker in names)

    def step(self, name: str) -> Optional[int]:
        """The step that a worker was last seen in; None where it gave no sign of life or began none."""
        return next((beat.begun or None for beat in self.beats([name])), None)

    def silent(self, names: Sequence[str]) -> tuple[tuple[str, float], ...]:
        """Those of these workers in a fit that have written nothing for some seconds, and for how many."""
        now = self._clock()
        inside = [beat for beat in self.beats(names) if beat.is_training]
        return tuple((beat.worker, now - beat.written) for beat in inside if now - beat.written > _SILENT_SECONDS)

    def who_is_missing(self, names: Sequence[str]) -> Standstill:
        """For whom the others wait."""
        return standstill(self.beats(names), self._clock(), names)

    def stalled(self, names: Sequence[str]) -> Optional[tuple[Heartbeat, ...]]:
        """The workers' last signs of life where all of them are beyond their limit; None while one gets on.

        Args:
            names: The workers that train and have not ended.
        """
        beats = self.beats(names)
        if not names or len(beats) < len(names):
            return None
        return beats if all(_is_beyond(beat, self._clock()) for beat in beats) else None


def _is_beyond(beat: Heartbeat, now: float) -> bool:
    if beat.limit_seconds is None:
        return False
    margin = min(_MOST_MARGIN_SECONDS, max(_LEAST_MARGIN_SECONDS, beat.limit_seconds))
    return now - beat.progressed > beat.limit_seconds + margin
