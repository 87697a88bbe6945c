"""Keras 2: rows of an embedding that occur more than once are added up without a loop where XLA compiles the step.

Keras 2's optimisers find each row once with ``tf.unique``. XLA has no such operation, and TensorFlow gives it a loop
with an iteration for each token of the batch: a BERT-large step of 64 sequences of 128 tokens ran 8,192 iterations of
three kernels, longer than all of its matrix products. Here the tokens are sorted, and equal neighbours are added up.
The result has as many rows as there are tokens; those that are left over have an index behind the last row, which XLA
drops when it scatters.

Source: tf_keras/src/optimizers/optimizer.py, ``_deduplicate_sparse_grad``; tensorflow/compiler/tf2xla/kernels/
unique_op.cc; XLA's operation semantics, Scatter.
"""

from __future__ import annotations

import types
from typing import Any

import tensorflow as tf

from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.tensorflow_private import in_xla_context

_METHOD = "_deduplicate_sparse_grad"
_LEGACY_METHOD = "_resource_apply_sparse_duplicate_indices"


def install(package: Package, optimizer: Any) -> bool:
    """Corrects an optimiser on the instance; False where it is so, or where its class has a way of its own."""
    inner = optimizer.inner_optimizer if isinstance(optimizer, package.scaler) else optimizer
    for base, name, method in (
        (package.optimizer, _METHOD, _deduplicate),
        (package.legacy_optimizer, _LEGACY_METHOD, _apply_sparse),
    ):
        if isinstance(inner, base) and name not in inner.__dict__:
            if getattr(type(inner), name, None) is not getattr(base, name, None):
                return False
            inner.__dict__[name] = types.MethodType(method, inner)
            return True
    return False


def summed_rows(values: Any, indices: Any, rows: Any) -> tuple[Any, Any]:
    """Adds up values of equal indices, with shapes that do not depend on the indices.

    Args:
        values: Shape ``(tokens, ...)``.
        indices: Shape ``(tokens,)``, in any order.
        rows: How many rows there are: the index of what is left over.

    Returns:
        Sums of shape ``(tokens, ...)`` and their indices, each once; sums that are left over are zero.
    """
    order = tf.argsort(indices)
    ordered = tf.gather(indices, order)
    is_new = tf.concat([tf.zeros_like(ordered[:1]), tf.cast(ordered[1:] != ordered[:-1], ordered.dtype)], axis=0)
    segment = tf.cumsum(is_new)
    count = tf.shape(indices)[0]
    sums = tf.math.unsorted_segment_sum(tf.gather(values, order), segment, count)
    index = tf.math.unsorted_segment_max(ordered, segment, count)
    used = tf.range(count) <= tf.cast(segment[-1], tf.int32)
    return sums, tf.where(used, index, tf.cast(rows, index.dtype))


def _deduplicate(self: Any, grads: Any) -> list[Any]:
    """Replaces ``Optimizer._deduplicate_sparse_grad``."""
    if not in_xla_context():
        return list(type(self)._deduplicate_sparse_grad(self, grads))
    found = []
    for gradient in grads:
        if isinstance(gradient, tf.IndexedSlices):
            shape = gradient.dense_shape
            sums, index = summed_rows(gradient.values, gradient.indices, shape[0])
            gradient = tf.IndexedSlices(sums, index, shape)
        found.append(gradient)
    return found


def _apply_sparse(self: Any, grad: Any, handle: Any, indices: Any, **kwargs: Any) -> Any:
    """Replaces ``OptimizerV2._resource_apply_sparse_duplicate_indices``."""
    if not in_xla_context():
        return type(self)._resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **kwargs)
    sums, index = summed_rows(grad, indices, handle.shape[0])
    return self._resource_apply_sparse(sums, handle, index, **kwargs)
