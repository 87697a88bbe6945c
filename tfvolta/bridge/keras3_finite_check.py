"""Keras 3: whether sparse gradients are finite is asked of all their values, where they lie.

Keras 3's ``LossScaleOptimizer.check_finite`` spreads the answers for an embedding's gradient over the whole table
before it looks at them. TensorFlow has no kernel on a GPU for that (``TensorScatterUpdate`` of bool), so each step
carries one byte for each number of the gradient and of the table through the host: two LSTM layers behind an embedding
train four times slower under mixed_float16 than they need to. And where a row occurs twice the later answer replaces
the earlier one, so that an infinite gradient can pass as finite and reach the weights.

Source: keras/src/optimizers/loss_scale_optimizer.py, ``check_finite``; keras/src/backend/tensorflow/sparse.py,
``densifying_unary``.
"""

from __future__ import annotations

import types
from typing import Any, Sequence

import keras
import tensorflow as tf

from tfvolta.bridge import keras3_functions

_NAME = "check_finite"
_Wrapper = keras.optimizers.LossScaleOptimizer


def install(optimizer: Any) -> bool:
    """Corrects a ``LossScaleOptimizer`` on the instance; False where it was so, or the class has a check of its own."""
    if _NAME in optimizer.__dict__ or type(optimizer).check_finite is not _Wrapper.check_finite:
        return False
    optimizer.__dict__[_NAME] = types.MethodType(_check, optimizer)
    return True


def mend(model: Any) -> bool:
    """Corrects the optimiser of a compiled model, however it came to scale its loss; False where there is nothing."""
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, _Wrapper) or not install(optimizer):
        return False
    keras3_functions.reset(model)
    return True


def _check(self: Any, grads: Sequence[Any]) -> Any:
    """Whether all gradients are finite, as a scalar tensor; slices are looked at as they are."""
    values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
    return _Wrapper.check_finite(self, values)
