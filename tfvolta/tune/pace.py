"""The callback that times blocks of training steps, and notes the loss on the way."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.tune.block_clock import BlockClock
from tfvolta.tune.speed_request import Lines, SpeedRequest


class Pace(Callback):
    """Times blocks of steps, waiting for the device at their ends only, so that steps overlap as they do in training.

    A block may span epochs. Counted is the time from the start of an epoch to the end of its last step, the start of
    the data's iterator included; validation and what callbacks do at the end of an epoch are not.

    Attributes:
        batches: Batches that were trained, all in all.
    """

    def __init__(self, request: SpeedRequest, lines: Lines, done: Callable[[Any], None]):
        """Prepares.

        Args:
            request: How long blocks are, and how many.
            lines: Takes what was timed.
            done: Called with the model after the last block; need not return.
        """
        super().__init__()
        self.batches = 0
        self._request, self._lines, self._done = request, lines, done
        self._calls = self._blocks = self._position = self._epochs = 0
        self._first_end: Optional[float] = None
        self._clock = BlockClock()
        self._examples_known = True
        self._before = (0, 0.0)  # examples of the epochs that are over, and the sum of their losses

    def on_train_begin(self, logs: Logs = None) -> None:
        """Says that fit has begun."""
        self._lines.say("fit", startup_seconds=time.time() - self._request.started)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """An epoch's iterator is about to be made."""
        self._position = 0
        if self._warm():
            self._clock.start(0, self.batches)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Starts the clock of the first call."""
        if not self._calls:
            self._first_end = -time.perf_counter()
            self._lines.say("first call", startup_seconds=time.time() - self._request.started)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the call's batches, and ends a block that is long enough."""
        self._calls += 1
        steps = self.params.get("steps")
        position = batch + 1 if steps is None else min(batch + 1, steps)
        self.batches += max(1, position - self._position)
        self._position = position
        if self._calls == 1:
            self._first_call(logs)
        elif self._clock.is_running:
            if self._clock.seconds >= self._request.block_seconds:
                self._end_block(logs)
        elif self._warm():
            self._clock.start(self._wait(), self.batches)
        if self._calls & (self._calls - 1) == 0:  # the first few, and ever fewer: a slow trial ends where a fast one
            self._lines.say("loss", loss=self._loss(logs))  # begins, and losses are compared at one number of examples

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Stops the clock until the next epoch, and keeps the epoch's loss."""
        self._epochs += 1
        examples = self._wait() or self._position
        self._clock.stop(examples, self.batches)
        loss = _number(logs)
        if loss is not None:
            self._before = (self._before[0] + examples, self._before[1] + examples * loss)

    def on_train_end(self, logs: Logs = None) -> None:
        """A fit that ended before all blocks were timed."""
        self._done(self.model)

    def _warm(self) -> bool:
        asked = self._request
        if self._calls < asked.warmup_calls or self._epochs < asked.warmup_epochs or self._first_end is None:
            return False
        return time.perf_counter() - self._first_end >= asked.warmup_seconds

    def _first_call(self, logs: Logs) -> None:
        began = -(self._first_end or 0.0)
        self._wait()
        self._first_end = time.perf_counter()
        self._lines.say("first step", seconds=self._first_end - began)

    def _wait(self) -> Optional[int]:
        """Waits for the device; the examples of the running epoch, where they are counted."""
        examples = self.bridge.examples_seen(self.model)
        if examples is None:
            self._examples_known = False
            self.bridge.step_counts(self.model)
        return examples

    def _end_block(self, logs: Logs) -> None:
        examples = self._wait()
        self._clock.stop(examples, self.batches)
        seconds, counted, batches = self._clock.take()
        self._blocks += 1
        known = self._examples_known and counted > 0
        self._lines.say(
            "block", seconds=seconds, batches=batches, examples=counted if known else None, loss=self._loss(logs)
        )
        if self._blocks >= self._request.blocks:
            self._done(self.model)
        self._clock.start(examples, self.batches)

    def _loss(self, logs: Logs) -> Optional[tuple[int, float]]:
        """Examples (batches where they are not counted) since the first, and the mean loss over them."""
        loss = _number(logs)
        if loss is None:
            return None
        examples = self._wait() if self._examples_known else None
        examples = self._position if examples is None else examples
        total = self._before[0] + examples
        return (total, (self._before[1] + examples * loss) / total) if total else None


def _number(logs: Logs) -> Optional[float]:
    """The loss in the logs; NaN stays, and is written as a word that JSON has."""
    found = None if logs is None else logs.get("loss")
    if found is None:
        return None
    value = float(found)
    return value if math.isfinite(value) else math.inf
