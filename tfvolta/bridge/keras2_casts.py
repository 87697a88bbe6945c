"""Casts around the ``call`` of a Keras 2 layer, and what its saved form says of its precision."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfvolta.bridge.keras2_journal import Journal

_CASTS = "_tfvolta_casts"


def cast_arguments(journal: Journal, layer: Any, dtype: Any) -> None:
    """Makes ``call`` get every floating tensor in a dtype; Keras by itself casts the first argument only."""
    _set_cast(journal, layer, "arguments", dtype)


def cast_results(journal: Journal, layer: Any, dtype: Any) -> None:
    """Makes ``call`` hand out every floating tensor in a dtype."""
    _set_cast(journal, layer, "results", dtype)


def leave_arguments(journal: Journal, layer: Any) -> None:
    """Takes an earlier ``cast_arguments`` back, of whatever retrofit."""
    if casts_arguments(layer):
        _set_cast(journal, layer, "arguments", None)


def casts_arguments(layer: Any) -> bool:
    """Whether ``cast_arguments`` is in force for a layer."""
    return layer.__dict__.get(_CASTS, {}).get("arguments") is not None


def save_as_float32(journal: Journal, layer: Any) -> None:
    """Makes the layer's config name float32, whatever it computes in."""
    if "get_config" not in layer.__dict__:
        inner = layer.get_config
        journal.set_attribute(layer, "get_config", lambda: {**inner(), "dtype": "float32"})


def set_spec(journal: Journal, layer: Any) -> None:
    """Gives the signature under which a SavedModel traces a layer the dtype to which the layer casts its inputs."""
    spec, dtype = layer._saved_model_arg_spec, layer._compute_dtype_object
    if spec is None or not layer._autocast or dtype is None or not dtype.is_floating:
        return
    inputs = tf.nest.map_structure(lambda item: _spec_in(item, dtype), spec[0][0])
    if tf.nest.flatten(inputs) != tf.nest.flatten(spec[0][0]):
        journal.set_attribute(layer, "_saved_model_inputs_spec", inputs)
        journal.set_attribute(layer, "_saved_model_arg_spec", ([inputs, *spec[0][1:]], spec[1]))


def _set_cast(journal: Journal, layer: Any, purpose: str, dtype: Any) -> None:
    casts = layer.__dict__.get(_CASTS, {})
    if casts.get(purpose) == dtype:
        return
    journal.set_attribute(layer, _CASTS, {**casts, purpose: dtype})
    if getattr(layer.__dict__.get("call"), "__name__", "") != "casting_call":
        journal.set_call(layer, _casting_call(layer.call))


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


def _spec_in(item: Any, dtype: Any) -> Any:
    """A tensor's spec in another dtype, where it is a floating one."""
    if isinstance(item, tf.TensorSpec) and item.dtype.is_floating:
        return tf.TensorSpec(item.shape, dtype, item.name)
    return item
