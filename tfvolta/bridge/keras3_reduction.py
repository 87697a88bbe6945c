"""Keras 3: the way of gradients in front of an optimiser, and one batch a call.

``apply`` of the outermost optimiser is where every train step ends, Keras's own and a script's; what sits there is on
the instance, so that the class, the config and the variables stay Keras's own for saving.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, ContextManager, Iterable

import keras
import tensorflow as tf
from keras.src import backend

from tfvolta.bridge import keras3_accumulation, keras3_functions, keras3_replicas, keras3_step_loop, reduction_part
from tfvolta.bridge.gradient_path import (
    PASSED,
    Arrival,
    GradientPath,
    forget_path,
    path_in_front_of,
    put_in_front_of,
)
from tfvolta.bridge.gradient_watch import Size
from tfvolta.bridge.reduction import ReductionSettings
from tfvolta.bridge.window import in_xla
from tfvolta.bridge.wire import Wire, reduce
from tfvolta.errors import BridgeError, Problem

_Wrapper = keras.optimizers.LossScaleOptimizer
_APPLY = "apply"


class _OneStep:
    """A context in which a model has ``steps_per_execution`` 1.

    Where it has another number, the steps of the last call run into the end of the data, of whatever size these are.
    """

    def __init__(self, model: Any):
        self._model = model
        self._steps = int(model.steps_per_execution)
        if self._steps != 1:
            keras3_step_loop.wait_for_batches(model)

    def __enter__(self) -> None:
        if self._steps != 1:
            self._model.steps_per_execution = 1

    def __exit__(self, *error: Any) -> None:
        if self._steps != 1:
            self._model.steps_per_execution = self._steps


class Keras3Adapter:
    """``tfvolta.bridge.reduction_part.Adapter``: what Keras 3 has of its own."""

    def optimizers(self, model: Any) -> Iterable[Any]:
        """The compiled optimiser, and those that a script keeps on the model itself."""
        found = [model.optimizer, *vars(model).values()]
        found = [each for each in found if isinstance(each, keras.optimizers.Optimizer)]
        return list({id(each): each for each in found}.values())

    def attach(self, optimizer: Any, path: GradientPath) -> None:
        """Puts a path in front of an optimiser, and takes away one from the optimiser inside."""
        inner = keras3_replicas.innermost(optimizer)
        if inner is not optimizer:
            forget_path(inner, _APPLY)
        put_in_front_of(optimizer, path, _APPLY, types.MethodType(_apply, optimizer))
        keras3_replicas.set_reducer(optimizer, _reducer(path))
        keras3_accumulation.set_taken_over(inner, path.taken_over)

    def detach(self, optimizer: Any) -> None:
        """Takes a path away."""
        inner = keras3_replicas.innermost(optimizer)
        for each in (optimizer, inner):
            forget_path(each, _APPLY)
        keras3_replicas.set_reducer(inner, None)
        keras3_accumulation.set_taken_over(inner, False)

    def prepare(self, model: Any) -> None:
        """Builds the optimiser of a built model: one that is built in a trace scales the loss by a constant there."""
        optimizer = model.optimizer
        if model.built and model.trainable_variables and not optimizer.built:
            with tf.init_scope(), model.distribute_strategy.scope():
                _build(optimizer, model.trainable_variables)

    def one_step(self, model: Any) -> ContextManager[None]:
        """A context in which a model trains one batch a call; Keras reads the number when it traces, too."""
        return _OneStep(model)

    def steps(self, model: Any) -> int:
        """Batches in a call of the train function."""
        return int(model.steps_per_execution)

    def remake(self, model: Any) -> None:
        """Forgets the traced functions."""
        keras3_functions.reset(model)


ADAPTER = Keras3Adapter()


class ReductionPart(reduction_part.ReductionPart):
    """Knows that an optimiser of Keras 3 may add up gradients by itself."""

    reduction_adapter = ADAPTER

    def set_reduction(self, model: Any, **settings: Any) -> bool:
        """Changes how a compiled model's gradients are reduced; see ``Bridge.set_reduction``.

        Raises:
            BridgeError: Both the settings and the optimiser add up gradients over batches.
        """
        steps = keras3_accumulation.steps_of(getattr(model, "optimizer", None))
        path = reduction_part.path_of(model)
        if steps > 1 and settings.get("every", 1) > 1:
            raise BridgeError("Gradients cannot be added up twice.", [_both(model, steps, settings["every"])])
        if path is not None and path.taken_over:
            wanted = dataclasses.replace(path.settings, **{**settings, "every": path.settings.every})
            return reduction_part.install(ADAPTER, model, wanted, taken_over=True)
        return super().set_reduction(model, **settings)


def mend(model: Any) -> bool:
    """Carries out an optimiser's own accumulation where Keras's fails; False where nothing was changed."""
    path = reduction_part.path_of(model)
    former = ReductionSettings() if path is None else path.settings
    if keras3_accumulation.needs_help(model):
        settings = dataclasses.replace(former, every=keras3_accumulation.steps_of(model.optimizer))
        return reduction_part.install(ADAPTER, model, settings, taken_over=True)
    if path is not None and path.taken_over:
        return reduction_part.install(ADAPTER, model, dataclasses.replace(former, every=1))
    return False


def _both(model: Any, steps: int, every: int) -> Problem:
    inner = keras3_replicas.innermost(model.optimizer)
    return Problem(
        where=f"{type(inner).__name__}(gradient_accumulation_steps={steps})",
        expected="one place that adds up gradients over batches",
        received=f"communication.reduce_every: {every} as well",
        why=f"an update would come once in {steps * every} batches, and nobody may have meant that",
        fix=f"leave gradient_accumulation_steps out, or remove reduce_every; reduce_every: {steps * every} is both",
    )


def _build(optimizer: Any, variables: list[Any]) -> None:
    """As ``Optimizer.apply`` does before the first step."""
    with backend.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(variables)
    optimizer.built = True


def _apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    """Replaces ``apply``: gradients take their path first."""
    path = path_in_front_of(self)
    if path is None or tf.distribute.in_cross_replica_context() or not len(grads):
        type(self).apply(self, grads, trainable_variables)
        return
    variables = None if trainable_variables is None else list(trainable_variables)
    if not self.built and variables is not None:
        _build(self, variables)
    known = variables or keras3_replicas.innermost(self)._trainable_variables
    arrival = Arrival(list(grads), known, checked=isinstance(self, _Wrapper), size=Size(_scale(self), carried=True))
    take_path(self, arrival, lambda ready: type(self).apply(self, ready, variables))


def _scale(optimizer: Any) -> Any:
    """The factor that a built optimiser divides gradients by; None where there is none."""
    if not isinstance(optimizer, _Wrapper):
        return getattr(optimizer, "loss_scale_factor", None)
    return tf.convert_to_tensor(optimizer.dynamic_scale.value)


def take_path(optimizer: Any, arrival: Arrival, then: Callable[[list[Any]], None]) -> None:
    """Sends gradients on their path, and gives what comes out at its end to ``then``, if anything does."""
    path = path_in_front_of(optimizer)
    if path is None:
        then(arrival.gradients)
    else:
        path.travel(arrival, lambda ready: then([_one_slice_a_row(gradient) for gradient in ready]))


def _one_slice_a_row(gradient: Any) -> Any:
    """A sparse gradient in which replicas and batches do not name a row twice.

    Optimisers that square a gradient would square each of two slices instead of their sum; Keras 2 adds them up first,
    Keras 3 does not.
    """
    if not isinstance(gradient, tf.IndexedSlices) or in_xla():  # where tf.unique counts padding
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _reducer(path: GradientPath) -> Callable[[list[Any]], list[Any]]:
    """What replicas do in place of the strategy's all-reduce: nothing, for gradients that took the path."""

    def reducer(gradients: list[Any]) -> list[Any]:
        return gradients if path.is_in(PASSED) else reduce(gradients, Wire(all_reduce=path.settings.all_reduce))

    return reducer
