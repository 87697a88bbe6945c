"""Tells the watchdog, the launcher and the other workers how far training has come."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.callbacks.stall import Stall
from tfvolta.evidence.place import WORKERS
from tfvolta.knobs.stall_watch import BEGUN, ENDED, EPOCH, OTHER, StallWatch
from tfvolta.knobs.watchdog import Watchdog as WatchdogKnob
from tfvolta.session.presence import answers_signals, heartbeat_of

if TYPE_CHECKING:
    from tfvolta.session import Session


class Progress(Callback):
    """Counts what training does into memory that is shared with a heartbeat file; a batch costs two assignments.

    Belongs at the end of the list: what the callbacks before it do in a batch then belongs to that batch, and a
    worker that hangs in one of them is behind the others.

    Args:
        session: The session whose plan holds the watchdog; without one signs of life are written all the same.
    """

    def __init__(self, session: Session):
        super().__init__()
        self.session = session
        self._watch = StallWatch(None)
        self._counts = self._watch.counts
        self._before = 0
        self._first_batch = False
        self._first_epoch = True

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts watching, in the thread that trains."""
        saved = self.session.context.saved.get(WatchdogKnob.name)
        self._watch = watch = saved if saved is not None else self._watch
        folder = _folder(self.session)
        if folder is not None:
            file = heartbeat_of(self.session.place, folder)
            if file is not None:
                watch.write_to(file)
        watch.answers = watch.answers or answers_signals()
        watch.on_stall = Stall(self.session, folder)
        self._counts = watch.counts
        self._first_epoch = True
        watch.arm()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Numbers steps on from where the optimiser stands; reading that waits for the device, once a fit."""
        counts = self._counts
        if self._first_epoch:
            self._first_epoch = False
            steps = self.bridge.step_counts(self.model)
            if steps is not None:
                self._watch.start_from(steps.applied + (steps.skipped or 0))
        self._before = int(counts[ENDED])
        self._first_batch = True
        counts[EPOCH] = epoch
        counts[OTHER] += 1

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Notes the number of the step that begins."""
        if self._first_batch:
            # An epoch that goes on from a checkpoint does not begin with batch 0.
            self._first_batch = False
            self._before -= batch
        self._counts[BEGUN] = self._before + batch + 1

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes the number of the step that has ended."""
        self._counts[ENDED] = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """The end of an epoch is progress."""
        self._counts[OTHER] += 1

    def on_test_begin(self, logs: Logs = None) -> None:
        """Evaluation traces and compiles a step of its own."""
        self._watch.evaluate()

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A batch of the evaluation is progress."""
        self._counts[OTHER] += 1

    def on_test_end(self, logs: Logs = None) -> None:
        """Training goes on."""
        self._watch.train_on()

    def on_train_end(self, logs: Logs = None) -> None:
        """Stops watching until the next fit."""
        self._watch.disarm()


def _folder(session: Session) -> Optional[str]:
    """Where signs of life go: the launcher's folder, or the run's own."""
    if session.place.heartbeats is not None:
        return session.place.heartbeats
    path = session.recorder.path
    if path is None:
        return None
    own = os.path.dirname(path)
    of_all = os.path.dirname(own)
    return os.path.join(os.path.dirname(of_all) if os.path.basename(of_all) == WORKERS else own, "heartbeats")
