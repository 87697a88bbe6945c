"""Keras 3: ``gradient_accumulation_steps`` of an optimiser, carried out by a path of the bridge's where Keras's fails.

Keras 3.15 decides inside a condition whether to update. With several replicas that ends in ``RuntimeError: merge_call
called while defining a new graph``; with ``use_ema`` the average of the weights is updated at every batch and forgets
so many times too fast. Taken over, the optimiser is called once in a window and updates each time.

``_iterations`` counts batches in Keras, and ``iterations`` is that number divided by the steps; it goes on doing so, so
that a saved optimiser means the same to plain Keras. Its ``gradient_accumulator`` variables stay zero.

Source: keras/src/optimizers/base_optimizer.py, ``_backend_apply_gradients``, Keras 3.15.
"""

from __future__ import annotations

import types
from typing import Any

from keras.src import ops

from tfvolta.bridge import keras3_replicas

_METHOD = "_backend_apply_gradients"
_TAKEN = "_tfvolta_accumulation_taken_over"


def steps_of(optimizer: Any) -> int:
    """``gradient_accumulation_steps`` of an optimiser, or of the one inside a wrapper; 1 where there are none."""
    return int(getattr(keras3_replicas.innermost(optimizer), "gradient_accumulation_steps", None) or 1)


def needs_help(model: Any) -> bool:
    """Whether Keras's own accumulation fails for a model, or gives wrong averages of the weights."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or steps_of(optimizer) == 1:
        return False
    several = model.distribute_strategy.num_replicas_in_sync > 1
    return bool(several or keras3_replicas.innermost(optimizer).use_ema)


def is_taken_over(optimizer: Any) -> bool:
    """Whether the bridge carries out an optimiser's accumulation."""
    return bool(getattr(keras3_replicas.innermost(optimizer), "__dict__", {}).get(_TAKEN))


def set_taken_over(inner: Any, value: bool) -> None:
    """Makes an optimiser update each time it is called, or do as Keras does again."""
    if value == bool(inner.__dict__.get(_TAKEN)):
        return
    if not value:
        inner.__dict__.pop(_TAKEN)
        inner.__dict__[_METHOD] = inner.__dict__.pop(f"{_TAKEN}_from")
        return
    inner.__dict__[f"{_TAKEN}_from"] = inner.__dict__[_METHOD]
    inner.__dict__[_TAKEN] = True
    inner.__dict__[_METHOD] = types.MethodType(_update, inner)
    if inner.built:  # a window that Keras began
        steps = inner.gradient_accumulation_steps
        inner._iterations.assign(ops.multiply(ops.floor_divide(inner._iterations, steps), steps))
        inner._backend_reset_gradient_accumulators()


def _update(self: Any, grads: Any, trainable_variables: Any) -> None:
    """Replaces ``_backend_apply_gradients``: one update with the average of a window."""
    # As in Keras's last batch of a window: schedules of the learning rate look at the count of batches.
    self._iterations.assign_add(self.gradient_accumulation_steps - 1)
    grads = keras3_replicas.reduced(self, list(grads))  # as they are, after a path
    with keras3_replicas.gradients_are_sums():
        grads = self._clip_gradients(grads)
        self._apply_weight_decay(trainable_variables)
        self._backend_update_step(grads, trainable_variables, self.learning_rate)
    if self.use_ema:
        self._update_model_variables_moving_average(self._trainable_variables)
        if self.ema_overwrite_frequency:
            ops.cond(
                ops.equal(ops.mod(self.iterations + 1, self.ema_overwrite_frequency), 0),
                lambda: self._overwrite_model_variables_with_average_value(self._trainable_variables),
                lambda: None,
            )
