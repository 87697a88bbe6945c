"""What the kernels use of Keras 3 and TensorFlow that is not public; a failure here names what has changed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.stack import KERAS3, keras, tf

if not KERAS3:
    pytest.skip("the kernels of Keras 3", allow_module_level=True)

from keras.src import backend

from tfvolta.bridge.tensorflow_private import in_xla_context

layers = keras.layers


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_what_is_replaced_has_the_arguments_that_replace_it() -> None:
    assert parameters(layers.BatchNormalization.call) == ["self", "inputs", "training", "mask"]
    for kind in (layers.LSTM, layers.GRU, layers.RNN):
        assert parameters(kind.inner_loop) == ["self", "sequences", "initial_state", "mask", "training"]
    assert parameters(keras.optimizers.LossScaleOptimizer.check_finite) == ["self", "grads"]


def test_what_batch_normalisation_is_asked_for() -> None:
    norm = layers.BatchNormalization()
    norm.build((None, 4, 4, 3))
    assert norm.input_spec.ndim == 4 and callable(norm._moments)
    for name in ("axis", "epsilon", "momentum", "scale", "center", "synchronized", "renorm", "moving_mean"):
        assert hasattr(norm, name)


def test_what_a_recurrent_layer_is_asked_for() -> None:
    for kind in (layers.LSTM, layers.GRU):
        layer = kind(2, dropout=0.5)
        assert layer.cell.implementation == 2 and callable(layer.cell.get_dropout_mask)
        assert layer.use_cudnn == "auto" and layer.zero_output_for_mask is False and layer.recurrent_dropout == 0
    assert parameters(backend.cudnn_ok) == ["activation", "recurrent_activation", "unroll", "use_bias", "reset_after"]


def test_an_instance_s_method_is_what_a_call_runs() -> None:
    norm, loop = layers.BatchNormalization(), layers.LSTM(2)
    called = []
    norm.__dict__["call"] = lambda inputs, **keywords: called.append("call") or inputs
    loop.__dict__["inner_loop"] = lambda **keywords: called.append("loop") or _ended(keywords)
    norm(tf.ones((2, 3)))
    loop(tf.ones((2, 3, 4)))
    assert called == ["call", "loop"]


def _ended(keywords: Any) -> Any:
    states = keywords["initial_state"]
    return states[0], tf.expand_dims(states[0], 1), states


def test_a_trace_knows_whether_xla_compiles_it() -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append(in_xla_context())
        return x + 1

    tf.function(look, jit_compile=True)(tf.constant(1))
    tf.function(look)(tf.constant(1))
    tf.function(lambda x: tf.function(look)(x), jit_compile=True)(tf.constant(1))
    assert seen == [True, False, True]
