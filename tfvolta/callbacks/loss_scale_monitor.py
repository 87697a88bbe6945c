"""Loss scale, and optimiser steps attempted, applied and skipped; the same counts on every Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.bridge.base import StepCounts
from tfvolta.callbacks.base import Callback, Logs

if TYPE_CHECKING:
    from tfvolta.session import Session


class LossScaleMonitor(Callback):
    """Records the loss scale and what became of the optimiser's steps, at the end of each epoch.

    A step whose gradients are not finite is skipped: it is attempted and not applied. Keras 2 advances
    ``optimizer.iterations`` on such a step and Keras 3 does not, so neither is what schedules should be compared
    with; ``applied`` means the same on both.

    Args:
        every_batches: Also record at the first call at or after each multiple of so many batches of an epoch. Each
            record reads values from the device, which waits for it. None: at epoch ends only.
        session: Takes the records into the evidence of a run.

    Attributes:
        records: One mapping per record with ``epoch``, ``batch`` (None at an epoch's end), ``scale``, and since the
            start of this fit ``attempted``, ``applied`` and ``skipped``; None where nothing counts them or there is no
            loss scale.
    """

    def __init__(self, every_batches: Optional[int] = None, session: Optional[Session] = None):
        super().__init__()
        if every_batches is not None and every_batches < 1:
            raise ValueError(f"every_batches: expected None or at least 1, received {every_batches!r}")
        self.records: list[dict[str, Any]] = []
        self._every = every_batches
        self._session = session
        self._start: Optional[StepCounts] = None
        self._before: Optional[StepCounts] = StepCounts(0, 0)
        self._epoch = 0
        self._multiple = 0

    def summary(self) -> dict[str, Any]:
        """The last record, and all of them under ``records``; JSON values."""
        keys = ("scale", "attempted", "applied", "skipped")
        last = self.records[-1] if self.records else {}
        return {**{key: last.get(key) for key in keys}, "records": [dict(record) for record in self.records]}

    def set_model(self, model: Any) -> None:
        """Takes the model, and has its loss-scale wrapper count what it skips, which Keras itself does not."""
        super().set_model(model)
        self.bridge.count_steps(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts the records of a fit; where its data end without warning, Keras would count a step that never was."""
        self.bridge.mend(self.model)
        self.records = []
        self._before = StepCounts(0, 0)
        self._start = self.bridge.step_counts(self.model)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the optimiser's counts: a callback may have restored a saved optimiser since the last epoch."""
        self._epoch = epoch
        self._multiple = 0
        self._start = self.bridge.step_counts(self.model)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Records at each multiple of ``every_batches``, once, whatever number of batches a call covers."""
        if self._every is None or (batch + 1) // self._every <= self._multiple:
            return
        counts = self.bridge.step_counts(self.model)
        done = self._batches_done(batch, counts)
        if done // self._every > self._multiple:
            self._multiple = done // self._every
            self._record(done - 1, counts)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Records; Keras has waited for the device already."""
        counts = self.bridge.step_counts(self.model)
        self._record(None, counts)
        self._before = self._in_fit(counts)
        if self._session is not None:
            self._session.measured("loss_scale", self.summary())

    def _implements_train_batch_hooks(self) -> bool:
        return self._every is not None

    def _record(self, batch: Optional[int], now: Optional[StepCounts]) -> None:
        state = self.bridge.loss_scale(getattr(self.model, "optimizer", None))
        counts = self._in_fit(now)
        self.records.append(
            {
                "epoch": self._epoch,
                "batch": batch,
                "scale": None if state is None else state.scale,
                "attempted": None if counts is None else counts.attempted,
                "applied": None if counts is None else counts.applied,
                "skipped": None if counts is None else counts.skipped,
            }
        )

    def _in_fit(self, now: Optional[StepCounts]) -> Optional[StepCounts]:
        """Steps of this fit: those of the epochs that ended and those of this one."""
        counts = _since(self._start, now)
        if counts is None or self._before is None:
            return None
        return StepCounts(self._before.applied + counts.applied, _sum(self._before.skipped, counts.skipped))

    def _batches_done(self, batch: int, now: Optional[StepCounts]) -> int:
        """Batches of the epoch so far. Keras 3 numbers the last one too high where a call was not full.

        Where fit does not know how many there are, the optimiser's count tells, unless it accumulates gradients.
        """
        steps = self.params.get("steps")
        if steps:
            return min(batch + 1, int(steps))
        counts = _since(self._start, now)
        attempted = None if counts is None else counts.attempted
        per_call = self.bridge.steps_per_execution(self.model)
        state = self.bridge.reduction(self.model)
        accumulates = self.bridge.accumulation_steps(getattr(self.model, "optimizer", None)) > 1 or (
            state is not None and state.settings.every > 1
        )
        return attempted if attempted and not accumulates and batch + 1 - per_call < attempted <= batch else batch + 1


def _since(start: Optional[StepCounts], now: Optional[StepCounts]) -> Optional[StepCounts]:
    """Steps between two counts; None where they tell nothing, as after an optimiser was restored in between.

    A count that was None at the start began at zero.
    """
    if now is None or start is None:
        return now
    applied = now.applied - start.applied
    skipped = None if now.skipped is None else now.skipped - (start.skipped or 0)
    return None if applied < 0 or (skipped or 0) < 0 else StepCounts(applied, skipped)


def _sum(first: Optional[int], second: Optional[int]) -> Optional[int]:
    return None if first is None or second is None else first + second
