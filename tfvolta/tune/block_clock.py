"""Adds up the time of a block of steps, which may lie in several epochs."""

from __future__ import annotations

import time
from typing import Optional


class BlockClock:
    """Runs while steps of a block are trained, and stands between epochs.

    Attributes:
        is_running: Whether it runs.
    """

    def __init__(self) -> None:
        self.is_running = False
        self._began = 0.0
        self._from = (0, 0)
        self._sum = (0.0, 0, 0)

    def start(self, examples: Optional[int], batches: int) -> None:
        """Starts, where the counts are these."""
        self.is_running, self._began, self._from = True, time.perf_counter(), (examples or 0, batches)

    def stop(self, examples: Optional[int], batches: int) -> None:
        """Stops, where the counts are these; nothing happens where it stands."""
        if self.is_running:
            self.is_running = False
            seconds, all_examples, all_batches = self._sum
            self._sum = (
                seconds + time.perf_counter() - self._began,
                all_examples + (examples or 0) - self._from[0],
                all_batches + batches - self._from[1],
            )

    @property
    def seconds(self) -> float:
        """Of the block so far."""
        return self._sum[0] + (time.perf_counter() - self._began if self.is_running else 0.0)

    def take(self) -> tuple[float, int, int]:
        """Seconds, examples and batches of the block, which is over."""
        taken, self._sum = self._sum, (0.0, 0, 0)
        return taken
