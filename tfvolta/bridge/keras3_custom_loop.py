"""Keras 3: loss scaling in a custom training loop that sees gradients in their true size.

Keras 3 divides by the loss scale inside ``apply``, where a loop can no longer clip or log. Here the loop divides, and
the step takes gradients as they are.

Source: keras/src/optimizers/loss_scale_optimizer.py.
"""

from __future__ import annotations

import types
from typing import Any, Iterable, Mapping, Optional

import keras
import tensorflow as tf
from keras.src import backend

from tfvolta.bridge import (
    gradients,
    keras3_accumulation,
    keras3_functions,
    keras3_guard,
    keras3_loss_scale,
    keras3_reduction,
    keras3_replicas,
    loop_refusals,
)
from tfvolta.bridge.base import LossScaleSettings, StepCounts
from tfvolta.bridge.gradient_path import Arrival
from tfvolta.bridge.gradient_watch import Size

_Wrapper = keras.optimizers.LossScaleOptimizer


class CustomLoopPart:
    """The part of the bridge that custom training loops use."""

    def loop_optimizer(self, optimizer: Any, settings: LossScaleSettings, clipping: Mapping[str, float]) -> Any:
        wrapper = keras3_loss_scale.scale_optimizer(optimizer, settings)
        for name, value in clipping.items():
            setattr(wrapper.inner_optimizer, name, value)
        _prepare(wrapper)
        return wrapper

    def inner_optimizer(self, optimizer: Any) -> Any:
        return optimizer.inner_optimizer if isinstance(optimizer, _Wrapper) else optimizer

    def keeps_ema(self, optimizer: Any) -> bool:
        return bool(getattr(self.inner_optimizer(optimizer), "use_ema", False))

    def accumulation_steps(self, optimizer: Any) -> int:
        return 1 if keras3_accumulation.is_taken_over(optimizer) else keras3_accumulation.steps_of(optimizer)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        return gradients.scaled(loss, _scale(optimizer))

    def unscale_gradients(self, optimizer: Any, scaled: Any) -> Any:
        return gradients.unscaled(scaled, _scale(optimizer))

    def apply_true_gradients(self, optimizer: Any, grads_and_vars: Iterable[Any]) -> None:
        pairs = [tuple(pair) for pair in grads_and_vars]
        loop_refusals.refuse_empty(optimizer, pairs)
        keras3_replicas.install(optimizer)  # which clips the sum over replicas, not each one's share
        grads, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if not isinstance(optimizer, _Wrapper):
            grads = gradients.rescaled(grads, _scale(optimizer))  # Keras divides by loss_scale_factor
            optimizer.apply_gradients(zip(grads, variables))
            return
        loop_refusals.refuse_cross_replica(optimizer)
        _build(optimizer, variables)
        keras3_reduction.take_path(
            optimizer,
            Arrival(grads, variables, scale=_scale(optimizer), checked=True, size=Size(_scale(optimizer))),
            lambda ready: keras3_guard.step(optimizer, ready, variables, _take, gradients.all_finite),
        )

    def current_scale(self, optimizer: Any) -> Any:
        scale = _scale(optimizer)
        return float(scale) if tf.executing_eagerly() else tf.convert_to_tensor(scale)

    def count_steps(self, model: Any) -> bool:
        optimizer = getattr(model, "optimizer", None)
        if not isinstance(optimizer, _Wrapper) or not keras3_guard.install(optimizer):
            return False
        keras3_functions.reset(model)
        return True

    def optimizer_step_counts(self, optimizer: Any) -> StepCounts:
        counts = keras3_loss_scale.step_counts(types.SimpleNamespace(optimizer=optimizer))
        return StepCounts(0) if counts is None else counts


def _scale(optimizer: Any) -> Any:
    """The loss scale: a number, or a tensor where it is kept in a variable."""
    if not isinstance(optimizer, _Wrapper):
        return float(getattr(optimizer, "loss_scale_factor", None) or 1.0)
    variable = getattr(optimizer, "dynamic_scale", None)
    return float(optimizer.initial_scale) if variable is None else tf.convert_to_tensor(variable.value)


def _prepare(wrapper: Any) -> None:
    """Makes the variables of the loss scale now instead of at the first step.

    A function that is traced before the first step would keep the initial scale as a constant and never see another.
    """
    if wrapper.built or getattr(wrapper, "dynamic_scale", None) is not None:
        return
    made: dict[str, Any] = {}

    def build_later(variables: Any) -> None:
        del variables

    wrapper.inner_optimizer.__dict__["build"] = build_later
    try:
        with tf.init_scope(), wrapper.inner_optimizer._distribution_strategy.scope():
            wrapper.build([])
    finally:
        del wrapper.inner_optimizer.__dict__["build"]
    wrapper.built = False
    made.update({name: getattr(wrapper, name) for name in ("step_counter", "dynamic_scale")})

    def add_variable(self: Any, *arguments: Any, **keywords: Any) -> Any:
        name = keywords.get("name")
        return made[name] if name in made else type(self).add_variable(self, *arguments, **keywords)

    wrapper.__dict__["add_variable"] = types.MethodType(add_variable, wrapper)


def _build(wrapper: Any, variables: list[Any]) -> None:
    """As ``Optimizer.apply`` does before the first step."""
    if wrapper.built:
        return
    if loop_refusals.replicas() > 1:
        raise loop_refusals.refusal(
            wrapper,
            "an optimizer that is built",
            "its first step inside a replica",
            "Keras 3 cannot create an optimizer's variables inside strategy.run: replicas other than the first find"
            " them uninitialised",
            "with strategy.scope(): optimizer.build(model.trainable_variables)",
        )
    with backend.name_scope(wrapper.name, caller=wrapper):
        wrapper.build(variables)
    wrapper.built = True


def _take(wrapper: Any, grads: list[Any], variables: Optional[list[Any]]) -> None:
    """A step with finite gradients of true size; the scale doubles after enough of them in a row."""
    wrapper.inner_optimizer.apply(grads, trainable_variables=variables)
    keras3_guard.applied(wrapper)
