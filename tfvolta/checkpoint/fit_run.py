"""One fit with its checkpoints: where it is, when the next one is due, and when it is to end."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Optional

from tfvolta.checkpoint import disk, exchange, lock, randomness, resuming, state
from tfvolta.checkpoint.manifest import Position, Randomness
from tfvolta.checkpoint.resuming import Resumed
from tfvolta.checkpoint.saving import Writer
from tfvolta.checkpoint.stopping import Stopping
from tfvolta.checkpoint.store import Store
from tfvolta.checkpoint.training import Settings, Training
from tfvolta.errors import PREEMPTED_EXIT_CODE, CheckpointError, Preempted, Problem

# Slots of an optimiser that is not built yet, as multiples of the weights.
_SLOTS_AND_WEIGHTS = 3


class FitRun:
    """One fit: the callbacks tell it what happens.

    A checkpoint is written where the next batch or epoch begins, when the callbacks of the last one are done, so that
    what they change, such as a learning rate, is in it.

    Attributes:
        directory: Folder of this fit's checkpoints.
        is_chief: Whether this process leaves the files.
        resumed: The checkpoint that the fit went on from, or None.
        writer: What writes checkpoints.
        stopping: What hears SIGTERM; None before ``begin``.
    """

    def __init__(self, training: Training, settings: Settings, directory: Path):
        """Prepares.

        Args:
            training: The model and who trains it.
            settings: What the config asks for.
            directory: Folder of this fit's checkpoints.
        """
        self.directory = directory
        self.is_chief = training.peers.is_chief
        self.resumed: Optional[Resumed] = None
        self.stopping: Optional[Stopping] = None
        self._training, self._settings = training, settings
        self._store = Store(directory, settings.keep)
        self.writer = Writer(training, self._store)
        self._at = Position(0, 0, 0)
        self._length: Optional[int] = None
        self._due = False
        self._whole_epochs = False
        self._epoch_began = Randomness()
        self._saved_steps = 0

    def begin(self) -> None:
        """Prepares the folder, goes on from the newest checkpoint, and starts to listen for SIGTERM.

        Raises:
            CheckpointError: The folder cannot be used, or its checkpoints cannot; on every worker.
        """
        training = self._training
        self._whole_epochs = training.whole_epochs
        rivals = training.bridge.rivals(training.model)
        if rivals:
            raise CheckpointError("Two callbacks resume this fit.", [_rival(rivals[0])])
        exchange.from_chief(training.peers, self._prepare)
        stopping = Stopping(training, self.directory, self._settings.on_preemption)
        try:
            checkpoint = resuming.newest(training, self._store)
            if checkpoint is not None:
                self.resumed = resuming.resume(training, checkpoint)
                self._at, self._saved_steps = self.resumed.at, self.resumed.at.steps
        except BaseException:
            stopping.close()
            raise
        learnt = self.resumed.manifest.epoch_batches if self.resumed is not None else None
        self._length = training.epoch_batches or learnt
        self.stopping = stopping

    def _prepare(self) -> None:
        """What the chief does alone: a folder that can be written, without what a killed process left."""
        groups = self._training.groups("model")
        problem = disk.prepare(self.directory, state.size_bytes(groups) * _SLOTS_AND_WEIGHTS)
        if problem is not None:
            raise CheckpointError(f"Checkpoints cannot be written on {socket.gethostname()}.", [problem])
        holder = lock.hold(self.directory)
        if holder is not None:
            raise CheckpointError("Another training has this folder of checkpoints.", [_taken(self.directory, holder)])
        self._store.clean()
        aside = None if self._settings.resume else self._store.set_aside()
        if aside is not None:
            self._training.warned(f"checkpoint.resume is false: the checkpoints of an earlier run are in {aside} now.")
            self.directory.mkdir(parents=True, exist_ok=True)

    def epoch_begins(self, epoch: int) -> None:
        """An epoch begins; ends the process where it was told to."""
        first = self.resumed is not None and epoch == self.resumed.at.epoch
        if not first:
            self._at = Position(epoch, 0, self._at.steps)
            self._save_if_due()
        if self.stopping is not None and self.stopping.is_over():
            self._end_process()
        self._epoch_began = randomness.capture()
        if first:
            self._training.bridge.advance_data(self._training.model)
            _restore_history(self._training.model, self.resumed)

    def call_begins(self) -> None:
        """The next batches are about to be trained; ends the process where it was told to."""
        if not self._whole_epochs:
            self._save_if_due()
        if self.stopping is not None and not self.stopping.may_begin_call():
            self._end_process()

    def call_ends(self, batch: int) -> None:
        """Batches were trained.

        Args:
            batch: Number of the last one in its epoch; too large in Keras 3 where a call was not full.
        """
        done = batch + 1 if not self._length else min(batch + 1, self._length)
        steps = self._at.steps + max(done - self._at.batch, 0)
        self._at = Position(self._at.epoch, done, steps)
        every = self._settings.every_steps
        if every and steps // every > self._saved_steps // every:
            self._due = True

    def epoch_ends(self, epoch: int) -> None:
        """An epoch has ended."""
        if self._training.bridge.steps_per_execution(self._training.model) == 1:
            self._length = self._length or self._at.batch  # else the last number may be too large
        self._at = Position(epoch + 1, 0, self._at.steps)
        every = self._settings.every_epochs
        if every and self._at.epoch % every == 0:
            self._due = True

    def end(self) -> None:
        """The fit has ended: saves its end, and ends the process where it was told to."""
        if self.resumed is None or self._at.steps > self.resumed.at.steps or not self.resumed.over:
            self._save(finished=True)
        _restore_history(self._training.model, self.resumed)
        self._training.bridge.end_fit(self._training.model)
        lock.release(self.directory)
        if self.stopping is not None:
            told = self.stopping.was_asked_anywhere()
            self.stopping.close()
            if told:
                raise Preempted(f"SIGTERM: the training had ended; exit code {PREEMPTED_EXIT_CODE}.")

    def save_failed(self, updates: int) -> Optional[str]:
        """Saves the state that a failed call of the train function has left; its folder, None where that failed.

        The data iterator is one batch too far by then, so that it is left out: the data are passed over instead.

        Args:
            updates: Batches of that call that were trained.
        """
        self._at = Position(self._at.epoch, self._at.batch + updates, self._at.steps + updates)
        self.writer.leave_iterator_out()
        self._save()
        return self.writer.saved[-1].path

    def _save_if_due(self) -> None:
        if self._due:
            self._save()

    def _save(self, finished: bool = False) -> None:
        self._due, self._saved_steps = False, self._at.steps
        self.writer.write(self._at, self._epoch_began, self._length, finished)

    def _end_process(self) -> None:
        """Saves, unless that was done just now, and raises.

        Raises:
            Preempted: Always.
        """
        stopping = self.stopping
        assert stopping is not None
        if stopping.alone:
            text = f"the other workers did not answer; the newest checkpoint is {self.writer.newest}"
        elif self._whole_epochs and self._at.batch:
            text = f"parameter servers save between epochs; the newest checkpoint is {self.writer.newest}"
        elif self.resumed is not None and self._at == self.resumed.at:
            text = f"nothing was trained since {self.resumed.checkpoint}"
        else:
            if self._saved_steps != self._at.steps or self.writer.newest is None:
                self._save()
            text = f"saved {self._at} in {self.writer.newest}" if self.writer.newest else "nothing could be saved"
        if not stopping.alone:
            stopping.wait_for_all()  # nobody ends before the chief has everything on the disk
        stopping.close()
        lock.release(self.directory)
        raise Preempted(f"SIGTERM: {text}; exit code {PREEMPTED_EXIT_CODE}.")


def _taken(directory: Path, holder: str) -> Problem:
    return Problem(
        where=f"checkpoint.directory: {directory}",
        expected="a folder of this training alone",
        received=f"one that {holder} is training with",
        why="two trainings would remove each other's checkpoints, and go on from the other's",
        fix="give this training a checkpoint.directory of its own, or end the other one",
    )


def _rival(name: str) -> Problem:
    return Problem(
        where="model.fit: callbacks",
        expected="one callback that goes on from what was saved",
        received=f"{name}, and tfvolta's checkpoint section or Checkpoint callback",
        why="each would restore its own state and tell fit where to begin",
        fix=f"remove {name}, or the checkpoint section",
    )


def _restore_history(model: Any, resumed: Optional[Resumed]) -> None:
    """Puts the epochs before into Keras's history, once."""
    history = getattr(model, "history", None)
    if resumed is None or history is None or history.history:
        return
    saved = resumed.manifest.history
    history.epoch = [int(epoch) for epoch in saved.get("epoch", ())]
    for name, values in saved.items():
        if name.startswith("log:"):
            history.history[name[len("log:") :]] = [float(value) for value in values]
