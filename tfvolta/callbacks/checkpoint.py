"""Checkpoints of a training, and going on from them."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.callbacks.base import Logs
from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.saver import Saver
from tfvolta.callbacks.single import session_of


class Checkpoint(Carrier):
    """Saves weights, optimiser, loss scale, counters and the place in the data, and goes on from the newest of them.

    A training that was killed, or told to end by SIGTERM, goes on behind the last batch that a checkpoint has when the
    same script is started again.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.Checkpoint("checkpoints", every_steps=1000)])``

    Args:
        directory: Folder of the checkpoints; the same for all workers.
        every_steps: Save after so many batches.
        every_epochs: Save after so many epochs; 1 where nothing is given.
        keep: Checkpoints that are kept.
        resume: Go on from the newest checkpoint in the folder.
        on_preemption: Save when the process is told to end (SIGTERM), and end with code 143.
        strict: Whether a setting that changes nothing is an error instead of a warning.

    Raises:
        ConfigError: An argument is not accepted.
    """

    def __init__(
        self,
        directory: str = "checkpoints",
        every_steps: Optional[int] = None,
        every_epochs: Optional[int] = None,
        keep: int = 3,
        resume: bool = True,
        on_preemption: bool = True,
        *,
        strict: bool = True,
    ):
        section = {
            "directory": str(directory),
            "every_steps": every_steps,
            "every_epochs": every_epochs,
            "keep": keep,
            "resume": resume,
            "on_preemption": on_preemption,
        }
        super().__init__(session_of(strict, checkpoint=section))
        self._saver = Saver(self.session)

    def set_params(self, params: Any) -> None:
        """Takes what ``fit`` says about itself."""
        super().set_params(params)
        self._saver.set_params(params)

    def set_model(self, model: Any) -> None:
        """Takes the model to be trained."""
        super().set_model(model)
        self._saver.set_model(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Goes on from the newest checkpoint.

        Raises:
            CheckpointError: The folder or its checkpoints cannot be used.
        """
        super().on_train_begin(logs)
        self._saver.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Saves what the last epoch made due."""
        self._saver.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Saves what the last batches made due."""
        self._saver.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts."""
        super().on_train_batch_end(batch, logs)
        self._saver.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts."""
        super().on_epoch_end(epoch, logs)
        self._saver.on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Logs = None) -> None:
        """Saves the end of the fit."""
        self._saver.on_train_end(logs)
        super().on_train_end(logs)
