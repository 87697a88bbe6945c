"""What is left of a training after a failed step: in words, and in a checkpoint where it is the whole state."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.checkpoint.manifest import Position, Randomness
from tfvolta.peers import peers_of

if TYPE_CHECKING:
    from tfvolta.bridge.guard_records import FailedStep
    from tfvolta.session import Session

_FOLDER = "out_of_memory"
_NAMED = 4
_LAST = "go on from the last checkpoint."


@dataclasses.dataclass(frozen=True)
class Kept:
    """What was kept.

    Attributes:
        words: The state of model, optimiser and counters, in sentences.
        whole: Whether that is the state after the last good batch.
        path: The checkpoint; empty where none was written.
    """

    words: str
    whole: bool = False
    path: str = ""


class Rescue:
    """Keeps the state of one fit after a failed step."""

    def __init__(self, session: Session, model: Any, epochs: int, directory: Optional[str]):
        """Prepares.

        Args:
            session: The session of the fit.
            model: The model.
            epochs: Epochs that fit was asked for.
            directory: Folder for a checkpoint where the fit has none of its own; the run's when None.
        """
        self._session, self._model, self._epochs, self._directory = session, model, epochs, directory

    def keep(self, failed: FailedStep, at: Position, epoch_began: Randomness) -> Kept:
        """Says what the state is, and saves it where it is whole.

        Args:
            failed: The step.
            at: Where training was after the last good batch.
            epoch_began: Random generators at the start of the epoch.
        """
        if failed.half_done is None:
            return Kept(f"What the failed step has changed cannot be told; {_LAST}")
        if failed.half_done:
            return Kept(
                f"The update itself ran out of memory: a part of the weights is updated and a part is not; {_LAST}"
            )
        if failed.lost:
            names = ", ".join(failed.lost[:_NAMED])
            return Kept(
                f"Weights and optimiser are those after the last good batch, but the failed step has written {names}; "
                f"{_LAST}"
            )
        last = f"batch {at.batch - 1} of epoch {at.epoch}" if at.batch else f"the start of epoch {at.epoch}"
        text = f"The model, the optimiser and the counters are those after {last}"
        if peers_of(self._model).size > 1:
            return Kept(f"{text}; one worker alone cannot save them, so {_LAST}", True)
        try:
            saved = self._save(failed.updates or 0, at, epoch_began)
        except Exception as error:  # what is being reported matters more than what fails on the way
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            return Kept(f"{text}; they could not be saved ({reason}), and fit can be called again.", True)
        if not saved:
            return Kept(f"{text}, so that fit can be called again.", True)
        folder = Path(saved).parent.parent
        return Kept(f"{text}; saved in {saved}. Go on from it with checkpoint.directory: {folder}.", True, saved)

    def _save(self, updates: int, at: Position, epoch_began: Randomness) -> Optional[str]:
        """Saves beside the fit's own checkpoints, or in a folder of its own; None where there is no place for it."""
        from tfvolta.checkpoint.emergency import save_state

        training = self._training()
        runs = [_run_of(each) for each in training.bridge.fit_callbacks(self._model)]
        for run in runs:
            if run is not None:
                found: Optional[str] = run.save_failed(updates)
                return found
        directory = self._directory or self._own_directory()
        if directory is None:
            return None
        return save_state(training, Path(directory).expanduser().absolute() / "fit-00", at, epoch_began)

    def _own_directory(self) -> Optional[str]:
        path = self._session.recorder.path
        return None if path is None else os.path.join(os.path.dirname(path), _FOLDER)

    def _training(self) -> Any:
        from tfvolta.bridge import bridge_for
        from tfvolta.checkpoint.training import Training

        warned = self._session.recorder.warned
        return Training(self._model, bridge_for(self._model), peers_of(self._model), self._epochs, warned, warned)


def _run_of(callback: Any) -> Optional[Any]:
    """The running checkpoints of a callback that saves them; None for any other."""
    run = getattr(getattr(callback, "_saver", callback), "run", None)
    return run if hasattr(run, "save_failed") else None
