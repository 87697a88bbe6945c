"""Ending a fit that was told to end: hearing it, and stopping after the same step as the other workers."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from tfvolta.checkpoint import exchange
from tfvolta.checkpoint.agreement import Board, StopAgreement
from tfvolta.checkpoint.preemption import TerminationSignal
from tfvolta.checkpoint.training import Training


class Stopping:
    """Hears SIGTERM, on this worker or another, and says when this worker stops.

    Attributes:
        listens: Whether SIGTERM is heard on this worker.
    """

    def __init__(self, training: Training, directory: Path, on_signal: bool):
        """Starts to listen.

        Args:
            training: Who trains.
            directory: Folder of the fit's checkpoints, by which the workers tell each other.
            on_signal: Whether SIGTERM is to be heard.

        Raises:
            CheckpointError: A worker does not see the chief's folder.
        """
        self._peers = training.peers
        self._board: Optional[Board] = exchange.open_board(training.peers, directory)
        self._agreement = StopAgreement(training.peers.size, self._board)
        bridge, model = training.bridge, training.model
        self._signal = TerminationSignal(self._agreement.ask, lambda frame: bridge.is_fit(model, frame))
        self.listens = on_signal and self._signal.start()

    def may_begin_call(self) -> bool:
        """To be asked before each call of the train function: False where this worker stops before it."""
        return self._agreement.begin_call()

    def is_over(self) -> bool:
        """Whether this worker stops now, where no call follows at once."""
        return self._agreement.is_over()

    @property
    def alone(self) -> bool:
        """Whether the others did not answer, so that nothing can be saved together."""
        return self._agreement.failed

    def was_asked_anywhere(self) -> bool:
        """Whether any worker was told to end; all have to ask."""
        return any(self._peers.gather_one(int(self._agreement.asked)))

    def wait_for_all(self) -> None:
        """Waits until every worker has come here."""
        self._peers.gather_one(1)

    def close(self) -> None:
        """Stops listening."""
        self._signal.stop()
        self._agreement.close()
        if self._board is not None and self._peers.is_chief:
            self._board.close()
