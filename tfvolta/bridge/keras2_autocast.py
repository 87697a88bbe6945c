"""Changes to a built Keras 2 layer that a retrofit makes, each written down so that it can be taken back exactly.

A variable stays what it is, for the optimiser, for checkpoints and for ``model.weights``; only the layer's own
reference to it is replaced by an ``AutoCastVariable``, which reads in the layer's compute dtype while the layer runs.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping  # typing's does not know TensorFlow's tracking wrapper of a dict
from typing import Any, Callable

import tensorflow as tf

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
_CASTS = "_tfvolta_casts"


class Journal:
    """What was changed, by layer, in the order of the changes."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def set_policy(self, layer: Any, policy: str) -> None:
        """Gives a layer another dtype policy."""
        before = layer.dtype_policy
        if before.name != policy:
            layer._set_dtype_policy(policy)
            self._note(layer, lambda: layer._set_dtype_policy(before))

    def set_attribute(self, layer: Any, name: str, value: Any) -> None:
        """Sets an attribute past Keras's tracking."""
        present, before = name in layer.__dict__, layer.__dict__.get(name)
        layer.__dict__[name] = value

        def restore() -> None:
            if present:
                layer.__dict__[name] = before
            else:
                layer.__dict__.pop(name, None)

        self._note(layer, restore)

    def set_spec(self, layer: Any) -> None:
        """Gives the signature under which a SavedModel traces a layer the dtype to which the layer casts its inputs."""
        spec, dtype = layer._saved_model_arg_spec, layer._compute_dtype_object
        if spec is None or not layer._autocast or dtype is None or not dtype.is_floating:
            return
        inputs = tf.nest.map_structure(lambda item: _spec_in(item, dtype), spec[0][0])
        if tf.nest.flatten(inputs) != tf.nest.flatten(spec[0][0]):
            self.set_attribute(layer, "_saved_model_inputs_spec", inputs)
            self.set_attribute(layer, "_saved_model_arg_spec", ([inputs, *spec[0][1:]], spec[1]))

    def cast_variables(self, package: Package, layer: Any) -> None:
        """Makes the layer read each of its floating variables in its compute dtype."""
        holders = [layer, *(m for m in layer._flatten_modules(recursive=False, include_self=False) if not _is_layer(m))]
        for holder in holders:
            for name, value in list(vars(holder).items()):
                if name not in _BOOKS and not name.startswith(("_self_", "_saved_model")):
                    self._cast_value(package, layer, value, _dictionary_setter(holder.__dict__, name))

    def cast_arguments(self, layer: Any, dtype: Any) -> None:
        """Makes ``call`` get every floating tensor in a dtype; Keras by itself casts the first argument only."""
        self._set_cast(layer, "arguments", dtype)

    def cast_results(self, layer: Any, dtype: Any) -> None:
        """Makes ``call`` hand out every floating tensor in a dtype."""
        self._set_cast(layer, "results", dtype)

    def save_as_float32(self, layer: Any) -> None:
        """Makes the layer's config name float32, whatever it computes in."""
        if "get_config" not in layer.__dict__:
            inner = layer.get_config
            self.set_attribute(layer, "get_config", lambda: {**inner(), "dtype": "float32"})

    def leave_arguments(self, layer: Any) -> None:
        """Takes an earlier ``cast_arguments`` back, of whatever retrofit."""
        if casts_arguments(layer):
            self._set_cast(layer, "arguments", None)

    def revert(self, layer: Any) -> None:
        """Takes back what was changed in one layer."""
        kept = []
        for owner, restore in reversed(self._entries):
            if owner == id(layer):
                restore()
            else:
                kept.append((owner, restore))
        self._entries = kept[::-1]

    def undo(self) -> None:
        """Takes everything back; a second call finds nothing to do."""
        while self._entries:
            self._entries.pop()[1]()

    def _set_cast(self, layer: Any, purpose: str, dtype: Any) -> None:
        casts = layer.__dict__.get(_CASTS, {})
        if casts.get(purpose) == dtype:
            return
        self.set_attribute(layer, _CASTS, {**casts, purpose: dtype})
        if getattr(layer.__dict__.get("call"), "__name__", "") != "casting_call":
            self.set_call(layer, _casting_call(layer.call))

    def set_call(self, layer: Any, call: Callable[..., Any]) -> None:
        """Sets a method in front of a layer's ``call``; bound, as Keras leaves ``self`` out of a method's signature."""
        self.set_attribute(layer, "call", types.MethodType(call, layer))

    def _note(self, layer: Any, restore: Callable[[], None]) -> None:
        self._entries.append((id(layer), restore))

    def _cast_value(self, package: Package, layer: Any, value: Any, put: Callable[[Any], None]) -> None:
        """Replaces one attribute or element, or the elements of a container."""
        if isinstance(value, tf.Variable):
            if value.dtype.is_floating and not isinstance(value, package.autocast.AutoCastVariable):
                put(package.autocast.create_autocast_variable(value))
                self._note(layer, lambda: put(value))
        elif isinstance(value, (list, tuple, Mapping)):
            self._cast_elements(package, layer, value, put)

    def _cast_elements(self, package: Package, layer: Any, value: Any, put: Callable[[Any], None]) -> None:
        raw = _storage(value)
        if isinstance(raw, tuple):
            elements = list(raw)
            for index, element in enumerate(raw):
                self._cast_value(package, layer, element, functools.partial(elements.__setitem__, index))
            if any(new is not old for new, old in zip(elements, raw)):
                changed = type(raw)(*elements) if hasattr(raw, "_fields") else type(raw)(elements)
                put_tuple = functools.partial(setattr, value, "__wrapped__") if value is not raw else put
                self._replace_tuple(layer, put_tuple, raw, changed)
            return
        for key, element in list(raw.items() if isinstance(raw, Mapping) else enumerate(raw)):
            self._cast_value(package, layer, element, functools.partial(_put_element, layer, value, raw, key))

    def _replace_tuple(self, layer: Any, put: Callable[[Any], None], before: Any, after: Any) -> None:
        def exchange(old: Any, new: Any) -> None:
            put(new)
            for former, element in zip(old, new):
                _swap_in_books(layer, former, element)

        exchange(before, after)
        self._note(layer, lambda: exchange(after, before))


def casts_arguments(layer: Any) -> bool:
    """Whether ``cast_arguments`` is in force for a layer."""
    return layer.__dict__.get(_CASTS, {}).get("arguments") is not None


def _casting_call(inner: Any) -> Any:
    """A layer's ``call`` with the casts that are written down in the layer when it runs."""

    def casting_call(self: Any, *args: Any, **kwargs: Any) -> Any:  # AutoGraph converts this, and ``inner`` with it
        args, kwargs = _cast(self, "arguments", (args, kwargs))
        return _cast(self, "results", inner(*args, **kwargs))

    return casting_call


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _cast(layer: Any, purpose: str, structure: Any) -> Any:
    dtype = layer.__dict__.get(_CASTS, {}).get(purpose)
    return structure if dtype is None else cast_floating(structure, dtype)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def cast_floating(structure: Any, dtype: Any) -> Any:
    """A structure of tensors with every floating one cast to a dtype; everything else stays as it is."""

    def cast(item: Any) -> Any:
        floating = isinstance(item, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)) and item.dtype.is_floating
        return tf.cast(item, dtype) if floating and item.dtype != dtype else item

    return tf.nest.map_structure(cast, structure)


def _is_layer(module: Any) -> bool:
    return hasattr(module, "_set_dtype_policy")


def _spec_in(item: Any, dtype: Any) -> Any:
    """A tensor's spec in another dtype, where it is a floating one."""
    if isinstance(item, tf.TensorSpec) and item.dtype.is_floating:
        return tf.TensorSpec(item.shape, dtype, item.name)
    return item


def _storage(container: Any) -> Any:
    """What TensorFlow's tracking wrapper of a list, tuple or dict holds; an unwrapped container itself."""
    if hasattr(container, "_storage"):
        return container._storage
    return getattr(container, "__wrapped__", container)


def _dictionary_setter(dictionary: dict[str, Any], name: str) -> Callable[[Any], None]:
    return functools.partial(dictionary.__setitem__, name)


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
