"""A callback that every Keras accepts without being a subclass of any Keras class."""

from __future__ import annotations

from typing import Any, ClassVar, Mapping, Optional

from tfvolta.bridge import bridge_for
from tfvolta.bridge.base import Bridge

Logs = Optional[Mapping[str, Any]]


def _nothing(self: Any, logs: Logs = None) -> None:
    """A hook without a number that does nothing."""


def _nothing_numbered(self: Any, number: int, logs: Logs = None) -> None:
    """A hook with an epoch or batch number that does nothing."""


class Callback:
    """Base of tfvolta's callbacks: the hooks of Keras 2 and Keras 3, without importing either.

    The Keras that a callback serves is learnt from the model that it is given, so that one callback works
    with ``keras`` and ``tf_keras`` in the same process, and can be made on a machine without TensorFlow.
    Keras 2 asks each callback whether it can be given device tensors instead of numbers; one callback that
    cannot makes every training step wait for the device. tfvolta's callbacks can, and never look at ``logs``.

    Attributes:
        model: The model being trained; None before ``set_model``.
        params: What ``fit`` says about itself: ``epochs``, ``steps`` (None when not known), ``verbose``.

    Source: the hooks are those of ``keras.callbacks.Callback`` and ``CallbackList`` of Keras 2.15 and 3.15.
    """

    # Keras 2's CallbackList reads these three attributes of every callback.
    _supports_tf_logs: ClassVar[bool] = True
    _chief_worker_only: ClassVar[Optional[bool]] = None
    validation_data: Any = None

    on_train_begin = on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _nothing
    on_epoch_begin = on_epoch_end = on_batch_begin = on_batch_end = _nothing_numbered
    on_train_batch_begin = on_train_batch_end = _nothing_numbered
    on_test_batch_begin = on_test_batch_end = _nothing_numbered
    on_predict_batch_begin = on_predict_batch_end = _nothing_numbered

    def __init__(self) -> None:
        self.model: Any = None
        self.params: Mapping[str, Any] = {}
        self._bridge: Optional[Bridge] = None

    def set_params(self, params: Optional[Mapping[str, Any]]) -> None:
        """Takes what ``fit`` says about itself."""
        self.params = params or {}

    def set_model(self, model: Any) -> None:
        """Takes the model to be trained; called by Keras before each fit.

        Raises:
            BridgeError: It is no Keras model.
        """
        self._bridge = bridge_for(model)
        self.model = model

    @property
    def bridge(self) -> Bridge:
        """The bridge to the Keras of the model."""
        if self._bridge is None:
            raise RuntimeError(f"{type(self).__name__} has no model yet; Keras gives it one when fit starts")
        return self._bridge

    def _overrides(self, *hooks: str) -> bool:
        return any(getattr(type(self), hook) is not getattr(Callback, hook) for hook in hooks)

    def _implements_train_batch_hooks(self) -> bool:
        """Keras 2 calls train-batch hooks only when a callback says that it has one."""
        return self._overrides("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")

    def _implements_test_batch_hooks(self) -> bool:
        """As for training, for ``evaluate``."""
        return self._overrides("on_test_batch_begin", "on_test_batch_end")

    def _implements_predict_batch_hooks(self) -> bool:
        """As for training, for ``predict``."""
        return self._overrides("on_predict_batch_begin", "on_predict_batch_end")
