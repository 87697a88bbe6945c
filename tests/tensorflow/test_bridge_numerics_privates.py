"""What looks after float16's range relies on these private parts of Keras and TensorFlow; the first failure is here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack

BRIDGE = bridge_for_stack(STACK)
layers = keras.layers


def test_a_layer_takes_its_policy_in_the_base_constructor_before_it_makes_layers() -> None:
    order: list[str] = []

    class Own(layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="own")
            order.append(self.compute_dtype)

    undo = BRIDGE.keep_float32_constructed(["own"])
    policy = keras.config.set_dtype_policy if KERAS3 else keras.mixed_precision.set_global_policy
    policy("mixed_float16")
    try:
        Own()
        attention = layers.MultiHeadAttention(1, 2, name="own")
        attention(np.zeros((1, 2, 2), "float32"), np.zeros((1, 2, 2), "float32"))
    finally:
        policy("float32")
        undo()
    assert order == ["float32"] and attention.compute_dtype == "float32"
    inside = [layer for _, layer in BRIDGE.layers(attention) if layer.name in ("query", "key", "value")]
    if KERAS3:  # which hands its policy on; Keras 2 leaves it to the retrofit
        assert inside and {layer.compute_dtype for layer in inside} == {"float32"}


def test_variables_that_a_layer_holds_itself() -> None:
    outer = layers.Bidirectional(layers.LSTM(2))
    outer(np.zeros((1, 3, 2), "float32"))
    norm = layers.BatchNormalization()
    norm(np.zeros((1, 2), "float32"))
    assert BRIDGE.own_variables(outer) == [] and len(BRIDGE.own_variables(norm)) == 4


def test_calls_of_layers_go_through_the_class() -> None:
    seen: list[str] = []
    cls = BRIDGE.called_classes()[0]
    original = cls.__call__
    cls.__call__ = lambda self, *a, **k: (seen.append(self.name), original(self, *a, **k))[1]
    try:
        keras.Sequential([keras.Input((2,)), layers.Dense(1, name="inner")], name="outer")(np.zeros((1, 2), "float32"))
    finally:
        cls.__call__ = original
    assert (seen.count("inner") >= 1 and seen[-2:] in (["outer", "inner"], ["inner", "outer"])) or "outer" in seen


def test_masks_hang_on_tensors() -> None:
    masked = layers.Masking()(np.zeros((1, 2, 3), "float32"))
    assert masked._keras_mask is not None


@pytest.mark.skipif(KERAS3, reason="the two Keras 2 stacks")
def test_the_state_of_a_scale_asks_update_once_a_step() -> None:
    package: Any = BRIDGE.package  # type: ignore[attr-defined]
    state = package.scaler(keras.optimizers.SGD(), initial_scale=8.0)._loss_scale
    for name in ("update", "multiplier", "counter", "current_loss_scale", "growth_steps"):
        assert hasattr(state, name)
    update, finite = state.update([tf.constant([np.inf])])
    assert bool(finite) is False and float(state.current_loss_scale) == 4.0
    assert type(state) is package.loss_scale._DynamicLossScaleState
    del update


@pytest.mark.skipif(not KERAS3, reason="Keras 3")
def test_bare_operations_of_a_functional_model_are_called_like_layers() -> None:
    from keras.src.ops.operation import Operation

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.ops.exp(inputs))
    assert [type(each).__name__ for each in model.operations] == ["InputLayer", "Exp"]
    assert issubclass(layers.Layer, Operation) and issubclass(type(model.operations[1]), Operation)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    optimizer.build([keras.Variable(1.0)])
    assert isinstance(optimizer.dynamic_scale.value, tf.Variable) and isinstance(
        optimizer.step_counter.value, tf.Variable
    )
    assert callable(optimizer._overwrite_variable_with_gradient)
