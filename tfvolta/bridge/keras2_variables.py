"""Variables of a built Keras 2 layer that read in the layer's compute dtype while the layer runs.

A variable stays what it is, for the optimiser, for checkpoints and for ``model.weights``; only the layer's own
reference to it is replaced by an ``AutoCastVariable``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping  # typing's does not know TensorFlow's tracking wrapper of a dict
from typing import Any, Callable

import tensorflow as tf

from tfvolta.bridge.keras2_journal import Journal
from tfvolta.bridge.keras2_package import Package

# Attributes in which Keras and TensorFlow keep books about variables; the optimiser and checkpoints use them.
_BOOKS = frozenset(
    {
        "_trainable_weights",
        "_non_trainable_weights",
        "_undeduplicated_weights",
        "_obj_reference_counts_dict",
        "_compiled_trainable_state",
        "_checkpoint",
        "_compile_config",
        "_metrics",
        "_losses",
        "_callable_losses",
        "_updates",
        "optimizer",
        "compiled_loss",
        "compiled_metrics",
        "_train_counter",
        "_test_counter",
        "_predict_counter",
        "_steps_per_execution",
    }
)


class VariableCasts:
    """Replaces the references of one layer."""

    def __init__(self, package: Package, journal: Journal, layer: Any) -> None:
        self._autocast, self._journal, self._layer = package.autocast, journal, layer

    def apply(self) -> None:
        """Makes the layer read each of its floating variables in its compute dtype."""
        modules = self._layer._flatten_modules(recursive=False, include_self=False)
        for holder in (self._layer, *(module for module in modules if not _is_layer(module))):
            for name, value in list(vars(holder).items()):
                if name not in _BOOKS and not name.startswith(("_self_", "_saved_model")):
                    self._cast_value(value, functools.partial(holder.__dict__.__setitem__, name))

    def _cast_value(self, value: Any, put: Callable[[Any], None]) -> None:
        """Replaces one attribute or element, or the elements of a container."""
        if isinstance(value, tf.Variable):
            if value.dtype.is_floating and not isinstance(value, self._autocast.AutoCastVariable):
                put(self._autocast.create_autocast_variable(value))
                self._journal.note(self._layer, lambda: put(value))
        elif isinstance(value, (list, tuple, Mapping)):
            self._cast_elements(value, put)

    def _cast_elements(self, value: Any, put: Callable[[Any], None]) -> None:
        raw = _storage(value)
        if isinstance(raw, tuple):
            elements = list(raw)
            for index, element in enumerate(raw):
                self._cast_value(element, functools.partial(elements.__setitem__, index))
            if any(new is not old for new, old in zip(elements, raw)):
                changed = type(raw)(*elements) if hasattr(raw, "_fields") else type(raw)(elements)
                put_tuple = functools.partial(setattr, value, "__wrapped__") if value is not raw else put
                self._replace_tuple(put_tuple, raw, changed)
            return
        for key, element in list(raw.items() if isinstance(raw, Mapping) else enumerate(raw)):
            self._cast_value(element, functools.partial(_put_element, self._layer, value, raw, key))

    def _replace_tuple(self, put: Callable[[Any], None], before: Any, after: Any) -> None:
        def exchange(old: Any, new: Any) -> None:
            put(new)
            for former, element in zip(old, new):
                _swap_in_books(self._layer, former, element)

        exchange(before, after)
        self._journal.note(self._layer, lambda: exchange(after, before))


def _is_layer(module: Any) -> bool:
    return hasattr(module, "_set_dtype_policy")


def _storage(container: Any) -> Any:
    """What TensorFlow's tracking wrapper of a list, tuple or dict holds; an unwrapped container itself."""
    if hasattr(container, "_storage"):
        return container._storage
    return getattr(container, "__wrapped__", container)


def _put_element(layer: Any, container: Any, raw: Any, key: Any, value: Any) -> None:
    """Replaces an element without the container taking it for a change that forbids checkpoints."""
    _swap_in_books(layer, raw[key], value)
    raw[key] = value
    if container is not raw:
        container._update_snapshot()


def _swap_in_books(layer: Any, old: Any, new: Any) -> None:
    """Keeps the layer's lists of weights equal to its containers, from which Keras completes them time and again."""
    if isinstance(old, tf.Variable):
        for book in (layer._trainable_weights, layer._non_trainable_weights):
            book[:] = [new if variable is old else variable for variable in book]
