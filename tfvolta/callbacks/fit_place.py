"""Where in its data a fit is, for callbacks that have to say so when something fails."""

from __future__ import annotations

from typing import Any

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.checkpoint.manifest import Position
from tfvolta.peers import peers_of


class FitPlace(Callback):
    """Keeps the place of the running fit.

    Attributes:
        epoch: The running epoch.
        batch: The first batch of the present call of the train function.
        test_batch: The same of an evaluation inside the fit.
        steps: Batches that were trained in this fit.
        epoch_randomness: Random generators when the epoch began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epoch = self.batch = self.test_batch = self.steps = 0
        self.epoch_randomness: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Counts from zero."""
        self.epoch = self.batch = self.test_batch = self.steps = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Notes where training is."""
        from tfvolta.checkpoint import randomness

        self.epoch, self.batch = epoch, 0
        self.epoch_randomness = randomness.capture()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Notes where training is."""
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts."""
        self.steps += max(batch + 1 - self.batch, 1)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Notes where the evaluation is."""
        self.test_batch = batch

    def position(self, more: int = 0) -> Position:
        """The place after the last call, and so many batches of the present one."""
        return Position(self.epoch, self.batch + more, self.steps + more)

    def worker(self) -> str:
        """Name of this worker where several train; empty for one."""
        peers = peers_of(self.model)
        return peers.name if peers.size > 1 else ""
