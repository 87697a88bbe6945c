"""Keras 3: a loss-scale optimiser that skips a step on all replicas alike, counts what it skipped, and can be fixed.

Keras 3's ``LossScaleOptimizer`` asks only the first replica whether its own, not yet reduced, gradients are finite: an
overflow on another replica is all-reduced into the weights and destroys them, and one on another worker leaves that
worker waiting for ever. Here the sum over all replicas is looked at, which is the same for each of them: an infinity
anywhere makes it infinite or no number.

The correction sits on the instance, not in a subclass, so that the optimiser stays a plain ``LossScaleOptimizer`` for
saving: its class name, config and variables are Keras's own, and plain Keras loads it.

Source: keras/src/optimizers/loss_scale_optimizer.py, ``_tf_apply``.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, Optional

import keras
import tensorflow as tf
from keras.src import ops

from tfvolta.bridge import keras3_finite_check, keras3_functions, keras3_replicas
from tfvolta.bridge.either import either
from tfvolta.bridge.kernel_records import UPDATE
from tfvolta.bridge.scale_bounds import ScaleBounds
from tfvolta.bridge.scale_control import ScaleControl
from tfvolta.bridge.tensorflow_private import in_xla_context

NEVER = 0  # growth steps of a fixed scale: Keras compares its counter with ``growth_steps - 1``, which is never -1

_KEY = "_tfvolta_guard"


@dataclasses.dataclass
class Guard:
    """What was added to an optimiser.

    Attributes:
        skipped: int64 variable, steps skipped since the guard was installed. It is kept out of the optimiser's
            variables and trackables, so that saved files do not hold it.
        control: What a step does to the scale.
        former_factor: ``loss_scale_factor`` of the inner optimiser before it was wrapped.
        compiles_update: Whether XLA compiles the update of a step that it does not compile as a whole.
    """

    skipped: Any
    control: ScaleControl
    former_factor: Optional[float] = None
    compiles_update: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        return self  # a copied optimiser counts with the original


def install(optimizer: Any, former_factor: Optional[float] = None) -> bool:
    """Corrects a ``LossScaleOptimizer``; False where it was corrected already."""
    keras3_replicas.install(optimizer)
    keras3_finite_check.install(optimizer)
    if guard_of(optimizer) is not None:
        return False
    strategy = optimizer.inner_optimizer._distribution_strategy
    with tf.init_scope(), strategy.scope():
        skipped = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="skipped_steps",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    optimizer.__dict__[_KEY] = Guard(skipped, ScaleControl(strategy), former_factor)
    optimizer.__dict__["_tf_apply"] = types.MethodType(_apply, optimizer)
    optimizer.__dict__["_stateful_handle_non_finite_grads"] = types.MethodType(_skip, optimizer)
    return True


def remove(optimizer: Any) -> Optional[Guard]:
    """Takes the correction away; what it held, or None where there was none."""
    guard = guard_of(optimizer)
    optimizer.__dict__.pop(_KEY, None)
    for name in ("_tf_apply", "_stateful_handle_non_finite_grads"):
        optimizer.__dict__.pop(name, None)
    return guard


def guard_of(optimizer: Any) -> Optional[Guard]:
    """What was added to an optimiser, or None."""
    guard = optimizer.__dict__.get(_KEY)
    return guard if isinstance(guard, Guard) else None


def is_fixed(optimizer: Any) -> bool:
    """Whether a ``LossScaleOptimizer`` was given a scale that never changes."""
    return bool(optimizer.dynamic_growth_steps == NEVER)


def set_bounds(optimizer: Any, bounds: ScaleBounds) -> bool:
    """Gives a corrected optimiser other bounds, and brings its scale within them; False where it had them.

    The train step has to be traced anew.
    """
    guard = guard_of(optimizer)
    if guard is None or guard.control.bounds == bounds:
        return False
    guard.control.bounds = bounds
    limit(optimizer)
    return True


def limit(optimizer: Any) -> bool:
    """Brings a dynamic scale within its bounds; False where it is there, or has no variable yet."""
    guard, variable = guard_of(optimizer), getattr(optimizer, "dynamic_scale", None)
    if guard is None or variable is None or is_fixed(optimizer):
        return False
    present = float(variable.numpy())
    limited = guard.control.bounds.limited(present)
    if limited != present:
        variable.assign(limited)
    return limited != present


def compile_update(model: Any, wanted: bool) -> str:
    """See ``tfvolta.bridge.base.Bridge.compile_update``."""
    optimizer: Any = getattr(model, "optimizer", None)
    guard = guard_of(optimizer) if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else None
    if guard is None:
        return "Without a loss scale the update is left to Keras."
    inner = type(optimizer.inner_optimizer)
    if wanted and not inner.__module__.startswith("keras."):
        return f"{inner.__name__} is no optimiser of Keras's, and XLA may not know what it does."
    if wanted and optimizer.inner_optimizer._distribution_strategy.num_replicas_in_sync > 1:
        return "Several replicas are reduced inside the update, which XLA does not compile."
    if guard.compiles_update is not wanted:
        guard.compiles_update = wanted
        keras3_functions.reset(model)
    return ""


def applied(optimizer: Any) -> None:
    """What a step that was applied does to the scale."""
    guard = guard_of(optimizer)
    scale, steps, growth = optimizer.dynamic_scale, optimizer.step_counter, optimizer.dynamic_growth_steps
    if guard is not None:
        guard.control.applied(scale, steps, growth, is_fixed(optimizer))
        return

    def double() -> None:
        doubled = ops.multiply(scale, 2.0)
        steps.assign(0)
        scale.assign(ops.where(ops.isfinite(doubled), doubled, scale))

    def count() -> None:
        steps.assign_add(1)

    either(tf.equal(tf.convert_to_tensor(steps), growth - 1), double, count)


def _skip(self: Any) -> None:
    """What a step with non-finite gradients does: it is counted, and a dynamic scale falls, to 1 without a guard."""
    guard = guard_of(self)
    if guard is not None:
        guard.skipped.assign_add(1)
        guard.control.skipped(self.dynamic_scale, self.step_counter, is_fixed(self))
    elif not is_fixed(self):
        self.step_counter.assign(0)
        self.dynamic_scale.assign(ops.maximum(ops.multiply(self.dynamic_scale, 0.5), 1.0))


def _take(self: Any, grads: list[Any], variables: Optional[list[Any]]) -> None:
    """Replaces ``_stateful_handle_finite_grads``: Keras lets the scale grow without bounds."""
    scale = self.dynamic_scale
    unscaled = [
        gradient
        if gradient is None or self._overwrite_variable_with_gradient(variable)
        else ops.divide(gradient, scale)
        for gradient, variable in zip(grads, variables or self._trainable_variables)
    ]
    self.inner_optimizer.apply(unscaled, trainable_variables=variables)
    applied(self)


def _apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    """Replaces ``LossScaleOptimizer._tf_apply``: the step is taken if the gradients of all replicas are finite."""
    if tf.distribute.in_cross_replica_context():
        raise ValueError("apply() must be called in a replica context.")
    variables = list(trainable_variables) if trainable_variables is not None else None
    step(self, list(grads), variables, _take, self.check_finite)


def step(
    optimizer: Any,
    grads: list[Any],
    variables: Optional[list[Any]],
    take: Callable[[Any, list[Any], Optional[list[Any]]], None],
    check: Callable[[list[Any]], Any],
) -> None:
    """Takes or skips a step, on all replicas alike; in replica context.

    Args:
        optimizer: A built ``LossScaleOptimizer``; one without a guard skips too, uncounted.
        grads: Gradients of this replica, in what size ``take`` wants them; they are added up here.
        variables: Their variables; None for those that the optimiser was built with.
        take: Called with the three above where the gradients of all replicas are finite.
        check: Whether gradients are finite, as a scalar tensor.
    """
    grads = keras3_replicas.reduced(optimizer, grads, variables)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def take_sums(optimizer: Any, grads: list[Any], variables: Optional[list[Any]]) -> None:
        with keras3_replicas.gradients_are_sums():
            take(optimizer, grads, variables)

    if tf.__internal__.distribute.strategy_supports_no_merge_call():

        def update() -> None:
            either(check(grads), lambda: take_sums(optimizer, grads, variables), lambda: _skip(optimizer))

        guard = guard_of(optimizer)
        if guard is not None and guard.compiles_update and not tf.executing_eagerly() and not in_xla_context():
            update.__name__ = UPDATE  # by which the traced step shows it
            tf.function(update, jit_compile=True, autograph=False)()
        else:
            update()
        return

    def across_replicas(distribution: Any, grads: Any, variables: Any) -> None:
        finite = distribution.extended.call_for_each_replica(check, args=(grads,))

        def take_everywhere() -> None:
            distribution.extended.call_for_each_replica(take_sums, args=(optimizer, grads, variables))

        # The branches merge replicas, which only a condition in cross-replica context allows.
        everywhere = tf.reduce_all(tf.stack(distribution.experimental_local_results(finite)))
        ops.cond(everywhere, take_everywhere, lambda: _skip(optimizer))

    tf.distribute.get_replica_context().merge_call(across_replicas, args=(grads, variables))
