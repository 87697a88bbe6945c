"""Keras 3: a CallbackList that converts logs to numbers only when a callback looks at them.

Keras 3 converts every batch's logs on its own, which waits for the device each step, with or without callbacks.
Source: keras/src/callbacks/callback_list.py, ``_on_train_batch_end``.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional

import keras
from keras.src.utils import python_utils

from tfvolta.bridge import keras3_running_fit


class LazyLogs(dict):  # type: ignore[type-arg]
    """Logs of one batch: keys are there at once, values become floats together at the first look at one.

    Attributes:
        conversions: How many logs were converted in this process.
    """

    conversions = 0

    def __init__(self, logs: Mapping[str, Any]) -> None:
        super().__init__(_flat(logs))
        self._pending = True

    def _convert(self) -> None:
        """The numbers that Keras would have put there, in place."""
        if self._pending:
            self._pending = False
            LazyLogs.conversions += 1
            super().update(python_utils.pythonify_logs(dict(zip(self, super().values()))))

    def __iter__(self) -> Iterator[str]:
        # Overridden so that ``dict(logs)`` and ``{**logs}`` ask for items instead of copying the raw storage.
        return super().__iter__()

    def copy(self) -> dict[str, Any]:
        """The numbers in a plain dictionary."""
        self._convert()
        return dict(super().items())

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    __copy__ = copy


def _reader(name: str) -> Any:
    """A method of dict that sees numbers."""
    plain = getattr(dict, name)

    def method(self: LazyLogs, *arguments: Any, **keywords: Any) -> Any:
        self._convert()
        return plain(self, *arguments, **keywords)

    method.__name__ = name
    method.__doc__ = plain.__doc__
    return method


for _name in ("__getitem__", "get", "items", "values", "pop", "popitem", "setdefault", "update"):
    setattr(LazyLogs, _name, _reader(_name))
for _name in ("__setitem__", "__eq__", "__ne__", "__repr__", "__or__", "__ror__", "__ior__"):
    setattr(LazyLogs, _name, _reader(_name))


def _flat(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested logs flattened and sorted as Keras does it, values untouched."""
    result: dict[str, Any] = {}
    for key, value in sorted(logs.items()):
        if isinstance(value, dict):
            result.update(_flat(value))
        else:
            result[key] = value
    return result


class LazyCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Keras's CallbackList, whose batch hooks hand out ``LazyLogs``.

    ``fit`` takes a CallbackList as it is, and so does the evaluation inside it. ``fit`` has not counted its batches
    when the list is made, so the number is taken when training begins.

    A list that is made outside ``fit`` waits with ``set_model`` until training begins, for only then is the model built
    and are its data known.
    """

    def __init__(self, callbacks: Any, model: Any, deferred: bool = False, **parameters: Any) -> None:
        super().__init__(callbacks, model=None if deferred else model, **parameters)
        self._waiting = model if deferred else None

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        """Gives the callbacks the model and the number of batches, then tells them that training begins."""
        if self._waiting is not None:
            model, self._waiting = self._waiting, None
            self.set_model(model)
        if self.params and self.params.get("steps") is None:
            steps = keras3_running_fit.batches(self.model)
            if steps is not None:
                self.set_params({**self.params, "steps": steps})
        super().on_train_begin(logs)

    def _on_batch_end(self, batch: int, logs: Any = None) -> None:
        self._hand_out("on_batch_end", batch, logs)

    def _on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._hand_out("on_train_batch_end", batch, logs)

    def _on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._hand_out("on_test_batch_end", batch, logs)

    def _on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        # ``predict`` hands over the outputs themselves; no callback of Keras reads them.
        self._hand_out("on_predict_batch_end", batch, logs)

    def _hand_out(self, hook: str, batch: int, logs: Any) -> None:
        lazy = LazyLogs(logs or {})
        for callback in self.callbacks:
            getattr(callback, hook)(batch, logs=lazy)


def callback_list(callbacks: Any, model: Any, **arguments: Any) -> LazyCallbackList:
    """A list for ``model.fit(callbacks=...)``; see ``tfvolta.bridge.base.Bridge.callback_list``.

    Args:
        arguments: ``add_history`` (True), ``add_progbar`` (verbose is not 0), ``verbose`` ("auto"), ``epochs`` (1),
            ``steps`` (None: counted when training begins), ``deferred`` (False: ``set_model`` is called at once).
    """
    parameters: dict[str, Any] = {"verbose": "auto", "epochs": 1, "steps": None, **arguments}
    parameters.setdefault("add_history", True)
    parameters.setdefault("add_progbar", parameters["verbose"] != 0)
    return LazyCallbackList(callbacks, model=model, **parameters)
