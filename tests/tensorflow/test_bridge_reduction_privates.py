"""The private parts of Keras and TensorFlow by which gradients are sent on their path; a change shows here first."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack

BRIDGE = bridge_for_stack(STACK)


def compiled(optimizer: Any = None, **arguments: Any) -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer or keras.optimizers.SGD(0.1), "mse", **{"jit_compile": False, **arguments})
    return model


def fitted(model: Any) -> Any:
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), batch_size=2, verbose=0)
    return model


@pytest.mark.skipif(not KERAS3, reason="Keras 3 only")
@pytest.mark.parametrize("scaled", (False, True))
def test_every_step_of_keras3_ends_in_apply_of_the_outermost_optimizer(scaled: bool) -> None:
    optimizer = keras.optimizers.SGD(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
    calls: list[int] = []

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        calls.append(len(list(grads)))

    optimizer.__dict__["apply"] = apply
    fitted(compiled(optimizer))
    assert set(calls) == {2}
    assert list(inspect.signature(type(optimizer).apply).parameters) == ["self", "grads", "trainable_variables"]


@pytest.mark.skipif(not KERAS3, reason="Keras 3 only")
def test_the_update_of_keras3_that_is_carried_out_in_its_place() -> None:
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, gradient_accumulation_steps=2)
    model = compiled(optimizer)
    optimizer.build(model.trainable_variables)
    for name in (
        "_backend_apply_gradients",
        "_backend_reset_gradient_accumulators",
        "_clip_gradients",
        "_apply_weight_decay",
        "_backend_update_step",
        "_update_model_variables_moving_average",
        "_overwrite_model_variables_with_average_value",
    ):
        assert callable(getattr(optimizer, name)), name
    assert len(optimizer._trainable_variables) == 2
    optimizer._iterations.assign(7)
    assert int(optimizer.iterations) == 3  # batches by steps
    source = inspect.getsource(type(optimizer)._get_current_learning_rate)
    assert "self._learning_rate(self._iterations)" in source  # schedules count batches


@pytest.mark.skipif(KERAS3, reason="Keras 2 only")
@pytest.mark.parametrize("kind", ("new", "legacy"))
@pytest.mark.parametrize("scaled", (False, True))
def test_every_step_of_keras2_ends_in_apply_gradients_of_the_outermost_optimizer(kind: str, scaled: bool) -> None:
    optimizer = (keras.optimizers if kind == "new" else keras.optimizers.legacy).SGD(0.1)
    optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer) if scaled else optimizer
    calls: list[int] = []

    def apply_gradients(grads_and_vars: Any, **keywords: Any) -> None:
        calls.append(len(list(grads_and_vars)))

    optimizer.__dict__["apply_gradients"] = apply_gradients
    fitted(compiled(optimizer))
    assert set(calls) == {2}
    word = "skip_gradients_aggregation" if kind == "new" else "experimental_aggregate_gradients"
    assert word in inspect.signature(type(optimizer).apply_gradients).parameters
    if kind == "legacy":
        assert callable(optimizer._transform_unaggregated_gradients)
    if scaled:
        assert isinstance(optimizer._loss_scale, BRIDGE.package.loss_scale._DynamicLossScaleState)


@pytest.mark.skipif(KERAS3, reason="Keras 2 only")
def test_a_train_function_of_keras2_is_one_tf_function_whose_steps_are_a_variable() -> None:
    model = compiled(steps_per_execution=2)
    assert int(model.__dict__["_steps_per_execution"].numpy()) == 2
    several = model.make_train_function(force=True)
    assert callable(several.python_function) and model.train_tf_function is several
    model.__dict__["_steps_per_execution"] = None
    one = model.make_train_function(force=True)
    assert one is not several and "tf.range" not in inspect.getsource(one.python_function)


def test_a_model_s_train_function_is_made_by_a_method_that_the_instance_can_replace() -> None:
    model, made = compiled(), []
    own = type(model).make_train_function

    def make_train_function(force: bool = False) -> Any:
        made.append(force)
        return own(model, force=force)

    model.__dict__["make_train_function"] = make_train_function
    fitted(model)
    assert made


def test_what_names_a_variable_and_what_says_that_xla_compiles() -> None:
    from tensorflow.python.ops import control_flow_util

    from tfvolta.bridge.window import key_of

    model = fitted(compiled())
    names = [key_of(variable) for variable in model.trainable_variables]
    assert len(set(names)) == 2 and names == [key_of(variable) for variable in model.trainable_variables]
    seen: list[bool] = []

    def look(value: Any) -> Any:
        seen.append(bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())))
        return value

    for compile_it in (False, True):
        tf.function(look, jit_compile=compile_it).get_concrete_function(tf.constant(1.0))
    assert seen == [False, True]
