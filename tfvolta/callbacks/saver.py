"""Saves the state of a session's fits, and goes on from it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.errors import CheckpointWarning, Preempted
from tfvolta.knobs.checkpoint import Checkpointing, Progress, settle
from tfvolta.peers import peers_of

if TYPE_CHECKING:
    from tfvolta.checkpoint.fit_run import FitRun
    from tfvolta.session import Session

_FITS = "fits that ended"


class _AtTheEnd(Callback):
    """Stands behind all other callbacks of a fit, and does something when they have ended."""

    def __init__(self, action: Callable[[], None]):
        super().__init__()
        self._action = action

    def on_train_end(self, logs: Logs = None) -> None:
        """Acts."""
        self._action()


class Saver(Callback):
    """Carries the ``checkpoint`` section into ``fit``.

    It comes before the monitors and the user's callbacks, so that they find a restored model, and writes where the next
    batch or epoch begins, when they are done with the last one.

    Args:
        session: The open session of a config with a ``checkpoint`` section.

    Attributes:
        run: The running fit with its checkpoints; None outside one.
    """

    def __init__(self, session: Session):
        super().__init__()
        self.session = session
        self.run: Optional[FitRun] = None
        self._written = 0
        self._end_comes_last = False

    def on_train_begin(self, logs: Logs = None) -> None:
        """Goes on from the newest checkpoint.

        Raises:
            CheckpointError: The folder or its checkpoints cannot be used.
        """
        from tfvolta.checkpoint.fit_run import FitRun
        from tfvolta.checkpoint.training import Training

        settings = _settings(self.session)
        training = Training(
            self.model,
            self.bridge,
            peers_of(self.model),
            int(self.params.get("epochs") or 1),
            self._warn,
            self.session.recorder.warned,
        )
        self.run = FitRun(training, settings, self._folder(settings.directory))
        self._written = 0
        self.run.begin()
        self._end_comes_last = self.bridge.add_last_callback(self.model, _AtTheEnd(self._end))
        self._progress()
        if self.run.resumed is not None:
            self._tell(f"goes on from {self.run.resumed.checkpoint}: {self.run.resumed.at}")
            if self.run.resumed.over:
                self._tell("nothing is left to train; checkpoint.resume: false trains anew")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Saves what the last epoch made due."""
        self._do(lambda run: run.epoch_begins(epoch))

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Saves what the last batches made due."""
        self._do(lambda run: run.call_begins())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts."""
        if self.run is not None:
            self.run.call_ends(batch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts."""
        if self.run is not None:
            self.run.epoch_ends(epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        """Saves the end of the fit, where no callback does so after all others."""
        if not self._end_comes_last:
            self._end()

    def _end(self) -> None:
        """Saves what the script finds after fit: callbacks may put the best weights back when training ends."""
        self._do(lambda run: run.end())
        self.run = None
        fits = self.session.context.saved
        fits[_FITS] = fits.get(_FITS, 0) + 1

    def _do(self, what: Any) -> None:
        """Does something that may save, or end the process."""
        if self.run is None:
            return
        try:
            what(self.run)
        except Preempted as preempted:
            self._progress()
            self._tell(preempted.message)
            self.session.close("interrupted", preempted)
            raise
        if len(self.run.writer.saved) > self._written:
            self._progress()

    def _progress(self) -> None:
        """Puts what was done into the evidence."""
        run, context = self.run, self.session.context
        assert run is not None
        saved, self._written = run.writer.saved, len(run.writer.saved)
        done = [each for each in saved if each.path]
        before = context.saved.get(Checkpointing.name)
        resumed = run.resumed
        context.saved[Checkpointing.name] = Progress(
            directory=str(run.directory),
            written=len(done),
            newest=done[-1].path or "" if done else "",
            readable=bool(done) and run.writer.is_readable(),
            resumed=f"Went on from {resumed.at}" if resumed else "",
            listens=run.stopping is not None and run.stopping.listens,
        )
        if done:
            figures = {
                "directory": str(run.directory),
                "written": len(done),
                "failed": len(saved) - len(done),
                "seconds": [round(each.seconds, 4) for each in done],
                "size_bytes": done[-1].size_bytes,
                "resumed_at_step": resumed.at.steps if resumed else None,
                "skipped_batches": resumed.skipped if resumed else None,
                "skip_seconds": round(resumed.skip_seconds, 4) if resumed else None,
            }
            self.session.measured(Checkpointing.name, figures)
            if before is None or before.written == 0 or before.directory != str(run.directory):
                settle(context)

    def _folder(self, directory: str) -> Path:
        """Folder of this fit: the fits of a run are told apart by their order, which is the same in every run.

        A fit that ended by an error is not counted: the next one in this process is its repetition.
        """
        number = self.session.context.saved.get(_FITS, 0)
        return Path(directory).expanduser().absolute() / f"fit-{number:02d}"

    def _warn(self, text: str) -> None:
        self.session.recorder.warned(text)
        warnings.warn(text, CheckpointWarning, stacklevel=6)

    def _tell(self, text: str) -> None:
        if self.run is not None and self.run.is_chief:
            print(f"tfvolta: {text}", file=sys.stderr, flush=True)


def _settings(session: Session) -> Any:
    from tfvolta.checkpoint.training import Settings

    section = session.config.checkpoint
    assert section is not None, "the session's config has no checkpoint section"
    every_epochs = section.every_epochs or (None if section.every_steps else 1)
    return Settings(
        section.directory,
        section.every_steps,
        every_epochs,
        section.keep,
        section.resume,
        section.on_preemption,
    )
