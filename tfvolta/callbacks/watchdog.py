"""A watchdog for a model that is already built and compiled."""

from __future__ import annotations

from typing import Any

from tfvolta.callbacks.base import Logs
from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.progress import Progress
from tfvolta.callbacks.single import session_of


class Watchdog(Carrier):
    """Notices that no batch has ended for a while, writes the stacks of all threads and ends the process.

    Under ``tfvolta launch`` it also names the worker for which the others wait.

    Example:
        ``model.fit(dataset, callbacks=[..., tfvolta.callbacks.Watchdog(stall_seconds=300)])``, last in the list

    Args:
        stall_seconds: Time without a finished batch; the first step of a fit gets three times as long, 120 s at least.
        end: Whether the process ends, with exit code 75, after the stacks were written.
        strict: Whether a watchdog that sees no batch is an error instead of a warning.

    Raises:
        ConfigError: An argument is not accepted.
    """

    def __init__(self, stall_seconds: float = 600.0, end: bool = True, strict: bool = True):
        super().__init__(session_of(strict, watchdog={"stall_seconds": stall_seconds, "end": end}))
        self._progress = Progress(self.session)

    def set_model(self, model: Any) -> None:
        """Takes the model to be trained."""
        super().set_model(model)
        self._progress.set_model(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Starts watching."""
        super().on_train_begin(logs)
        self._progress.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts an epoch."""
        self._progress.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Notes that a step begins."""
        self._progress.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes that a step has ended."""
        self._progress.on_train_batch_end(batch, logs)
        super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Notes that an epoch has ended."""
        self._progress.on_epoch_end(epoch, logs)
        super().on_epoch_end(epoch, logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Notes that an evaluation begins."""
        self._progress.on_test_begin(logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes that a batch of the evaluation has ended."""
        self._progress.on_test_batch_end(batch, logs)

    def on_test_end(self, logs: Logs = None) -> None:
        """Notes that training goes on."""
        self._progress.on_test_end(logs)

    def on_train_end(self, logs: Logs = None) -> None:
        """Stops watching."""
        self._progress.on_train_end(logs)
        super().on_train_end(logs)
