"""The clock that compares steps on batches in memory with steps as they are."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from tfvolta.callbacks.input_figures import InputFigures
from tfvolta.callbacks.input_stock import AHEAD, Mark, Room, Total, Window, most_held

_ATTEMPTS = 3
_ENOUGH_STEPS = 64


class InputClock:
    """Clocks the calls of the train function of one fit.

    Args:
        source: ``tfvolta.bridge.fit_input.FitInput`` of the fit.
        per_call: Batches in one call of the train function.
        warmup_steps: First steps that do not count.
        held_bytes: Most memory for batches that are held.
        wait: Waits until the device has finished.

    Attributes:
        source: The same.
        is_finished: Whether enough is known.
    """

    def __init__(self, source: Any, per_call: int, warmup_steps: int, held_bytes: int, wait: Callable[[], None]):
        from tfvolta.bridge.stocked_input import StockedInput

        self.source, self._wait = source, wait
        self._per_call = self._asked_per_call = per_call
        self._warmup_calls = max(2, -(-warmup_steps // per_call))  # the first one traces; the second tells how long
        self._most = most_held(source.dataset.element_spec, held_bytes)
        self._stock = StockedInput(source.dataset)
        source.replace(self._stock.dataset)
        # Kernels on a GPU run on while the host waits, and so may the steps of one call.
        self._overlaps = source.ahead or per_call > 1 or source.has_gpu
        self._steps: Optional[int] = None
        self._position = self._calls = self._attempts = 0
        self._began = self._step_seconds = 0.0
        self._window: Optional[Window] = None
        self._total = Total()
        self._held: Optional[tuple[float, float, int]] = None  # seconds of a step, of a batch alone, and steps
        self.is_finished = False

    def start_epoch(self, steps: Optional[int]) -> None:
        """Starts an epoch of so many batches, None where that is not known."""
        self._steps, self._position = steps, 0
        self._per_call = self._asked_per_call if steps is None else min(steps, self._asked_per_call)
        if self._calls >= self._warmup_calls and steps is not None and steps <= 2 * self._per_call:
            self._begin_to_count()  # otherwise with the second call, so that the start of an iterator is no step

    def begin(self, now: float) -> None:
        """A call begins."""
        self._began = now

    def end(self, batch: int) -> None:
        """A call ended with this batch of the epoch."""
        before, self._position = self._position, batch + 1 if self._steps is None else min(batch + 1, self._steps)
        self._calls += 1
        if self._window is not None:
            self._look_at(self._window)
        elif self._total.since is None and self._calls >= self._warmup_calls:
            self._step_seconds = (time.time() - self._began) / max(1, self._position - before)
            self._begin_to_count()
        if self._total.since is not None and self._position == self._steps:
            self._stop_counting()  # before Keras computes what the epoch's end needs

    def end_epoch(self) -> None:
        """Training of an epoch has ended; validation may follow."""
        if self._window is not None:
            # The data ended inside the stock. Its steps, and the wait for it, are those of steps as they are.
            self._total.since, self._window = self._window.since, None
            self._stock.let_go()
        if self._total.since is not None:
            self._stop_counting()
        compared = self._held is not None or self._attempts >= _ATTEMPTS
        self.is_finished = compared and self._total.steps >= _ENOUGH_STEPS

    def figures(self) -> Optional[InputFigures]:
        """What is known so far; None without a step that counts."""
        total = self._total
        # Where others fetch ahead, a batch that is waited for is no step that waits.
        if not total.steps or (self._held is None and self.source.ahead):
            return None
        step, alone, number = self._held or (None, None, 0)
        means = (total.seconds / total.steps, total.waited / total.steps)
        return InputFigures(*means, total.steps, step, alone, number, self._overlaps)

    def close(self) -> None:
        """Puts the script's data set back."""
        self._stock.let_go()
        self.source.restore()

    def _begin_to_count(self) -> None:
        """Holds a stock where there is room for one in the epoch, and otherwise clocks steps as they are."""
        size = 0
        if self._held is None and self._attempts < _ATTEMPTS:
            left = None if self._steps is None else self._steps - self._position
            size = Room(self._per_call, left, self._step_seconds, self._most, self.source.ahead).batches()
        self._wait()
        if size:
            self._attempts += 1
            # What threads have fetched already comes first: so many steps further on the stock is not used up.
            self._window = Window(self._now(), size)
            self._stock.hold(size, AHEAD if self.source.ahead else 0)
        else:
            self._total.since = self._now()

    def _stop_counting(self) -> None:
        self._wait()
        self._total.stop(self._now())

    def _now(self) -> Mark:
        return time.time(), self._position, self._stock.fetched().seconds

    def _look_at(self, window: Window) -> None:
        """Starts and ends the time of the steps on a stock."""
        if window.began is None:
            full_at = self._stock.fetched().full_at
            if full_at > window.asked_at and not self.source.ahead:
                window.began = full_at
            elif full_at > window.asked_at:
                self._wait()
                window.began, window.start = time.time(), self._position
        if self._position < window.end:
            return
        self._window = None
        number = window.end - window.start
        if window.began is not None and self._position == window.end and number:
            self._wait()
            seen = self._stock.fetched()
            alone = (seen.full_at - seen.first_at) / max(1, window.size - 1)
            self._held = ((time.time() - window.began) / number, alone, number)
        self._stock.let_go()
        self._total.since = self._now()
