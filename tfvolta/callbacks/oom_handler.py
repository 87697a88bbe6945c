"""Hears in ``fit`` that memory ran out, keeps the state of the last good batch, and says what to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Logs
from tfvolta.callbacks.fit_place import FitPlace
from tfvolta.callbacks.oom_examination import examine
from tfvolta.callbacks.rescue import Rescue
from tfvolta.knobs.on_oom import OFF, SPLIT, Guarded, OnOom, settle
from tfvolta.memory.post_mortem import Place, PostMortem

if TYPE_CHECKING:
    from tfvolta.bridge.guard_records import FailedStep
    from tfvolta.session import Session


class OomHandler(FitPlace):
    """Carries ``memory.on_oom`` into ``fit``.

    Args:
        session: The open session of a config with that key.
        directory: Folder for the state of the last good batch where the fit saves no checkpoints; the run's folder
            when None, and nowhere where the run leaves no files.

    Attributes:
        guarded: What was done so far in the present fit.
        record: What was found out when memory ran out last; None before.
    """

    def __init__(self, session: Session, directory: Optional[str] = None):
        super().__init__()
        self.session = session
        self.guarded = Guarded()
        self.record: Optional[PostMortem] = None
        self._directory = directory
        self._mode = session.config.get("memory.on_oom") or OFF
        self._whole = ""

    def set_model(self, model: Any) -> None:
        """Makes the train step wait with its writes until all is computed."""
        from tfvolta.bridge.resuming import is_remote

        super().set_model(model)
        self.guarded = Guarded()
        if is_remote(model):
            self.guarded.refused = "Parameter servers update by themselves, without a common step."
        elif self._mode != OFF:
            self.bridge.watch_steps(model)
            self._whole = self.bridge.why_whole(model) if self._mode == SPLIT else ""
        self.session.context.saved[OnOom.name] = self.guarded

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Notes where training is, and guards the evaluation that may follow."""
        super().on_epoch_begin(epoch, logs)
        if self._guards:
            self.bridge.guard_tests(self.model, self._test_failed)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Guards the step that comes."""
        super().on_train_batch_begin(batch, logs)
        if self._guards:
            splits = self._mode == SPLIT and not self._whole
            self.bridge.guard_steps(self.model, self._failed, splits)
            self.guarded.calls += 1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts, and looks once at what the guard sees."""
        super().on_train_batch_end(batch, logs)
        if self._guards and self.guarded.early is None:
            self._look()

    def on_test_begin(self, logs: Logs = None) -> None:
        """Guards the evaluation inside a fit."""
        if self._guards and self.guarded.calls:
            self.bridge.guard_tests(self.model, self._test_failed)

    def on_train_end(self, logs: Logs = None) -> None:
        """Takes the guard away."""
        if self._guards:
            self._look()
            self.bridge.unguard_steps(self.model)
            self.session.measured(OnOom.name, dataclasses.asdict(self.guarded))

    @property
    def _guards(self) -> bool:
        return self._mode != OFF and not self.guarded.refused

    def _look(self) -> None:
        seen = self.bridge.guarded_steps(self.model)
        self.guarded.early, self.guarded.updates = seen.early, seen.updates
        self.guarded.split_batches, self.guarded.parts = seen.split_batches, seen.parts
        settle(self.session.context)

    def _failed(self, failed: FailedStep, iterator: Any) -> Any:
        """A train step failed: leaves the state of the last good batch, and raises."""
        self.guarded.failures += 1
        updates = failed.updates or 0
        exact = failed.updates is not None or self.bridge.steps_per_execution(self.model) == 1
        place = Place("train", self.epoch, self.batch + updates, exact, self.worker())
        notes = [self._whole] if self._whole else []
        if any(None in shape for _, shape in failed.shapes):
            notes.append("Sizes that vary are not kept in a step that XLA compiles.")
        drawn = self.bridge.unsaved_random(self.model)
        if drawn:
            notes.append(f"{drawn[0]} has drawn from a kernel whose state nobody can put back.")
        found = examine(self.session, self.model, failed, place, iterator, (*notes, *failed.notes))
        rescue = Rescue(self.session, self.model, int(self.params.get("epochs") or 1), self._directory)
        kept = rescue.keep(failed, self.position(updates), self.epoch_randomness)
        self._raise(dataclasses.replace(found, state=kept.words, restored=kept.whole, checkpoint=kept.path), failed)

    def _test_failed(self, failed: FailedStep, iterator: Any) -> Any:
        """An evaluation failed, which has changed nothing of the training."""
        self.guarded.failures += 1
        place = Place("validation", self.epoch, self.test_batch, True, self.worker())
        found = examine(self.session, self.model, failed, place, iterator, ())
        state = f"The epoch was trained to its end: the state is that after {self.steps} batches."
        self._raise(dataclasses.replace(found, state=state, restored=True), failed)

    def _raise(self, record: PostMortem, failed: FailedStep) -> None:
        from tfvolta.bridge.out_of_memory import OutOfMemoryError

        self.record = record
        self.bridge.unguard_steps(self.model)
        self.session.measured("out_of_memory", record.to_json())
        self.session.measured(OnOom.name, dataclasses.asdict(self.guarded))
        raise OutOfMemoryError(record.summary, record.problems(), failed.error, record) from failed.error
