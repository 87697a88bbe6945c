"""Examples a second and seconds a step, measured without waiting for the device."""

from __future__ import annotations

import collections
from time import perf_counter
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.bridge.base import Bridge
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.call_clock import CallClock
from tfvolta.callbacks.epoch_times import Calls, EpochTimes, Examples, StepCount, count_steps, epoch_times
from tfvolta.callbacks.ranks import ranks_counted_apart
from tfvolta.callbacks.step_sample import step_sample
from tfvolta.callbacks.throughput_summary import summarise

if TYPE_CHECKING:
    from tfvolta.session import Session

# Keras counts examples in a float32, which stands still here.
_LARGEST_COUNT = 2**24


class Throughput(Callback):
    """Measures examples per second, and the median and spread of the step time.

    Left out are the first steps of each fit, steps in which the train function was traced, slow steps in which XLA
    most likely compiled a new shape, and validation. For a batch it costs two readings of the clock. Figures per
    epoch come from the wall time up to the epoch's end, where the device has finished; single step times are those
    of the calls, which return before the device has finished where Keras does not wait for it
    (``step_times`` in the summary says which of the two was seen).

    Example:
        ``throughput = tfvolta.callbacks.Throughput()``, then ``model.fit(dataset, callbacks=[throughput])``
        and ``throughput.summary()["examples_per_second"]``.

    Args:
        warmup_steps: First steps of a fit that do not count.
        examples_per_step: Global batch size, for models whose loss Keras does not track.
        session: Takes the figures into the evidence of a run.
        capacity: Calls of an epoch, and of a fit, of which single times are kept; the latest count.

    Attributes:
        epochs: Figures of each epoch of the present or last fit.
        fit: Number of the present or last fit, from 1.
    """

    def __init__(
        self,
        warmup_steps: int = 2,
        examples_per_step: Optional[int] = None,
        session: Optional[Session] = None,
        capacity: int = 65536,
    ):
        super().__init__()
        self.epochs: list[EpochTimes] = []
        self._warmup_steps = warmup_steps
        self._examples_per_step = examples_per_step
        self._session = session
        self._sample: collections.deque[float] = collections.deque(maxlen=capacity)
        self._clock = CallClock(capacity, self._traces)
        self.fit = 0
        self._ranks = 1
        self._attempted: Optional[int] = None
        self._per_call = 1
        self._epoch_began: Optional[float] = None
        self._trained: Optional[tuple[float, Optional[int]]] = None

    def summary(self) -> dict[str, Any]:
        """Figures of the present or last fit as JSON values; None where something could not be measured.

        Under Horovod ``examples_per_second`` is this rank's, and ``examples_per_second_of_all_ranks`` that times the
        number of ranks, which wait for each other in every step.
        """
        return {"fit": self.fit, **summarise(self.epochs, list(self._sample), self._ranks)}

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the figures of a fit."""
        self.fit += 1
        self.epochs = []
        self._sample.clear()
        self._per_call = self.bridge.steps_per_execution(self.model)
        self._ranks = ranks_counted_apart(self.model)
        self._clock.start_fit(-(-self._warmup_steps // self._per_call))

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts the wall clock of an epoch."""
        self._trained = None
        # Not at the start of fit: a callback further down the list may restore a saved optimiser there.
        self._attempted = _attempted_steps(self.bridge, self.model)
        self._clock.start_epoch()
        self._epoch_began = perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock."""
        self._clock.begin(batch)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Reads the clock."""
        self._clock.end(batch)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Inside an epoch this is validation: training has ended, and the metrics are about to be reset."""
        if self._epoch_began is not None and self._trained is None:
            self._trained = self._end_of_training()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Turns the epoch's calls into figures."""
        if self._epoch_began is None:
            return
        ended, examples = self._trained or self._end_of_training()
        if self._clock.calls:
            counted = self._count()
            figures = epoch_times(
                self._clock,
                epoch,
                seconds=ended - self._epoch_began,
                wait_seconds=max(0.0, ended - self._clock.ended),
                counted=counted,
                examples=_examples(examples, counted.steps, self._examples_per_step, self._clock.first_batch),
                calls=Calls(self._per_call, self.bridge.jit(self.model).effective),
            )
            self.epochs.append(figures)
            self._sample.extend(figures.step_seconds)
            if self._session is not None:
                sample = step_sample(list(self._sample))
                self._session.measured("throughput", {**self.summary(), "step_sample": sample})
        self._epoch_began = None

    def _end_of_training(self) -> tuple[float, Optional[int]]:
        """Reading the count waits for the device, once an epoch; the time is taken after it."""
        examples = self.bridge.examples_seen(self.model)
        ended = perf_counter()
        self._clock.end_epoch(ended)
        return ended, examples

    def _traces(self) -> int:
        return self.bridge.trace_count(self.model)

    def _count(self) -> StepCount:
        before, now = self._attempted, _attempted_steps(self.bridge, self.model)
        attempted = None if before is None or now is None else now - before
        return count_steps(self._clock, attempted, self.params.get("steps"), self._per_call)


def _attempted_steps(bridge: Bridge, model: Any) -> Optional[int]:
    """Batches that were trained, by the optimiser's count of steps, or counted where one step takes several batches."""
    state = bridge.reduction(model)
    if state is not None and state.settings.every > 1:
        return state.batches
    counts = bridge.step_counts(model)
    return None if counts is None else counts.applied + (counts.skipped or 0)


def _examples(tracked: Optional[int], steps: int, per_step: Optional[int], passed: int) -> Examples:
    """Examples of an epoch: the loss tracker's count, unless it was reset on the way or contradicts the batch size.

    Of an epoch that goes on from a checkpoint the tracker has the batches before it too, which were passed over here.
    """
    if tracked is not None and passed and tracked >= passed + steps:
        tracked = tracked * steps // (passed + steps)
    if per_step is not None:
        if tracked is None or not (steps - 1) * per_step < tracked <= steps * per_step:
            return Examples(steps * per_step, "argument")
    elif tracked is None or not steps <= tracked < _LARGEST_COUNT:
        return Examples(None, None)
    return Examples(tracked, "loss_tracker")
