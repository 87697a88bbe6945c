"""Raises the learning rate to its target in the first epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.base import Callback, Logs
from tfvolta.knobs.learning_rate import Ramp, ramp_of

if TYPE_CHECKING:
    from tfvolta.session import Session


class LearningRateWarmup(Callback):
    """Sets the learning rate before each batch while a config's warm-up lasts; after it nothing is touched.

    The place on the ramp follows from the epoch and batch, so that a fit with ``initial_epoch`` starts where an
    uninterrupted one would be. Where the number of batches is not known, as in the first epoch over a generator, the
    value rises at epoch starts only.

    Args:
        session: The session whose plan has the ``learning_rate`` section.
    """

    def __init__(self, session: Session):
        super().__init__()
        self._session = session
        self._ramp: Optional[Ramp] = None
        self._epoch = 0
        self._rising = False

    def on_train_begin(self, logs: Logs = None) -> None:
        """Learns the ramp of this model."""
        ramp = ramp_of(self._session.context)
        self._ramp = None if ramp is None or ramp.fault or ramp.schedule else ramp

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Sets the value of the epoch's start."""
        self._epoch = epoch
        if self._ramp is None:
            return
        was_rising, self._rising = self._rising, epoch < self._ramp.epochs
        if self._rising or was_rising:
            self.bridge.set_learning_rate(self.model, self._ramp.at(float(epoch)))

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the value of this batch."""
        steps: Any = self.params.get("steps") if self._rising else None
        if steps and self._ramp is not None:
            self.bridge.set_learning_rate(self.model, self._ramp.at(self._epoch + batch / steps))
