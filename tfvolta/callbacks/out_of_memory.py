"""What happens when memory runs out, as one callback."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.callbacks.base import Logs
from tfvolta.callbacks.carrier import Carrier
from tfvolta.callbacks.oom_handler import OomHandler
from tfvolta.callbacks.single import session_of
from tfvolta.memory.post_mortem import PostMortem


class OutOfMemory(Carrier):
    """Says in which batch memory ran out and what would fit, and keeps the state of the last good batch.

    The error that ``fit`` raises is a ``tf.errors.ResourceExhaustedError`` with epoch, batch, shapes and remedies; its
    ``original`` is TensorFlow's own. Model, optimiser and counters are those after the last good batch, so that ``fit``
    can be called again with a smaller batch.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.OutOfMemory(directory="rescued")])``

    Args:
        on_oom: ``report``, or ``split`` to train the batch in parts first.
        directory: Folder for the state of the last good batch; None keeps it in the model only.
        strict: Whether a setting that changes nothing is an error instead of a warning.

    Raises:
        ConfigError: The value is not accepted.
    """

    def __init__(self, on_oom: str = "report", directory: Optional[str] = None, strict: bool = True):
        super().__init__(session_of(strict, memory={"on_oom": on_oom}))
        self._handler = OomHandler(self.session, directory)

    @property
    def record(self) -> Optional[PostMortem]:
        """What was found out when memory ran out last; None before."""
        return self._handler.record

    def set_params(self, params: Any) -> None:
        """Takes what ``fit`` says about itself."""
        super().set_params(params)
        self._handler.set_params(params)

    def set_model(self, model: Any) -> None:
        """Takes the model to be trained."""
        super().set_model(model)
        self._handler.set_model(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Counts from zero."""
        super().on_train_begin(logs)
        self._handler.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Notes where training is."""
        self._handler.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Guards the step that comes."""
        self._handler.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts."""
        super().on_train_batch_end(batch, logs)
        self._handler.on_train_batch_end(batch, logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Guards the evaluation inside a fit."""
        self._handler.on_test_begin(logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Notes where the evaluation is."""
        self._handler.on_test_batch_begin(batch, logs)

    def on_train_end(self, logs: Logs = None) -> None:
        """Takes the guard away."""
        super().on_train_end(logs)
        self._handler.on_train_end(logs)
