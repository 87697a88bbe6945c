"""Arithmetic on losses and gradients of a custom training loop; the same on every Keras, eager and in a graph."""

from __future__ import annotations

import collections.abc
from typing import Any

import tensorflow as tf

_HALVES = (tf.float16, tf.bfloat16)


def scaled(loss: Any, scale: Any) -> Any:
    """Losses times the scale. A half-precision loss becomes float32 first, because 32768 times 2 is no float16."""

    def one(item: Any) -> Any:
        tensor = tf.convert_to_tensor(item)
        tensor = tf.cast(tensor, tf.float32) if tensor.dtype in _HALVES else tensor
        return tensor * tf.cast(scale, tensor.dtype)

    return tf.nest.map_structure(one, loss)


def unscaled(gradients: Any, scale: Any) -> Any:
    """Gradients divided by the scale, in the structure given; None stays None and slices stay slices."""
    return _map(lambda values: values / tf.cast(scale, values.dtype), gradients)


def rescaled(gradients: Any, scale: Any) -> Any:
    """The reverse of ``unscaled``."""
    return _map(lambda values: values * tf.cast(scale, values.dtype), gradients)


def all_finite(gradients: Any) -> Any:
    """Whether no gradient holds an infinity or NaN; a scalar bool tensor."""
    values = [_values(item) for item in tf.nest.flatten(gradients) if item is not None]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])


def clip_by_global_norm(gradients: Any, norm: Any) -> tuple[Any, Any]:
    """Gradients made shorter together, so that their common Euclidean norm is at most ``norm``.

    In a replica of several, the norm is that of the sum over replicas, which is what the optimiser applies; every
    replica's share is divided by the same number. Rows that a sparse gradient names twice are added up first.

    Returns:
        The gradients in the structure given, and the norm before clipping as a scalar float32 (float64 where a
        gradient is). A norm that is not finite makes every gradient NaN, so that the step is skipped.
    """
    present = [item for item in tf.nest.flatten(gradients) if item is not None]
    if not present:
        return gradients, tf.constant(0.0)
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1:
        present = list(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
    dtype = tf.float64 if any(_values(item).dtype == tf.float64 for item in present) else tf.float32
    squares = [tf.reduce_sum(tf.square(tf.cast(_merged(item), dtype))) for item in present]
    total = tf.sqrt(tf.add_n(squares))
    limit = tf.cast(norm, dtype)
    divisor = tf.maximum(total, limit) / limit + (total - total)  # the last term is NaN for an infinite norm
    return _map(lambda values: values / tf.cast(divisor, values.dtype), gradients), total


def _map(function: Any, gradients: Any) -> Any:
    if isinstance(gradients, collections.abc.Iterator):
        gradients = list(gradients)

    def one(item: Any) -> Any:
        if item is None:
            return None
        if isinstance(item, tf.IndexedSlices):
            return tf.IndexedSlices(function(item.values), item.indices, item.dense_shape)
        return function(tf.convert_to_tensor(item))

    return tf.nest.map_structure(one, gradients)


def _values(item: Any) -> Any:
    return item.values if isinstance(item, tf.IndexedSlices) else tf.convert_to_tensor(item)


def _merged(item: Any) -> Any:
    """Values of a gradient; of slices with each row once."""
    if not isinstance(item, tf.IndexedSlices):
        return tf.convert_to_tensor(item)
    rows, places = tf.unique(item.indices)
    return tf.math.unsorted_segment_sum(item.values, places, tf.size(rows))
