"""The figures of a model's layers, against counts by hand, published counts and ``model.count_params()``."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tests.tensorflow.bridge_models import KINDS
from tfvolta.bridge import bridge_for_stack
from tfvolta.errors import BridgeError
from tfvolta.footprint import LayerFigures

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)


@pytest.fixture(autouse=True)
def _same_policy() -> Iterator[None]:
    yield
    BRIDGE.set_global_policy("float32")


def figures(model: Any, batch_size: int, input_shape: Any = None) -> dict[str, LayerFigures]:
    rows = BRIDGE.layer_figures(model, batch_size, input_shape)
    assert sum(row.parameters for row in rows) == model.count_params()
    found = {row.name: row for row in rows}
    assert len(found) == len(rows)
    return found


def work(model: Any, batch_size: int, input_shape: Any = None) -> dict[str, Any]:
    """Multiply-adds by kind of layer, where there are any."""
    counts: dict[str, Any] = {}
    for row in figures(model, batch_size, input_shape).values():
        if row.multiply_adds != 0:
            counts[row.kind] = row.multiply_adds + counts.get(row.kind, 0) if row.multiply_adds else None
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_every_kind(kind: str) -> None:
    found = figures(KINDS[kind](), 16)
    first = next(row for row in found.values() if row.kind in ("Conv2D", "SeparableConv2D"))
    assert (first.input_shapes, first.output_shapes) == (((16, 8, 8, 3),), ((16, 6, 6, 8),))
    last = found["head/out" if kind == "nested" else "out"]
    assert (last.multiply_adds, last.dimensions) == (16 * 8 * 3, (16, 3, 8))


def test_published_counts() -> None:
    """3.86 G for a ResNet-50 at 224 px; He et al. 2015, table 1, says 3.8 G."""
    resnet = work(keras.applications.ResNet50(weights=None), 2)
    assert resnet == {"Conv2D": 2 * (3_857_973_248 - 2_048_000), "Dense": 2 * 2_048_000}


def encoder(depth: int, width: int, heads: int) -> Any:
    tokens = keras.Input((None,), dtype="int32")
    x = layers.Embedding(100, width)(tokens)
    for _ in range(depth):
        attended = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + attended)
        x = layers.LayerNormalization()(x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x)))
    return keras.Model(tokens, x)


def test_a_transformer_by_its_formula() -> None:
    """12 h² a token and layer for the matrices and 2 s h for attention: BERT-base has 12 of h=768."""
    batch, tokens, width, depth = 2, 32, 64, 3
    counts = work(encoder(depth, width, 4), batch, (tokens,))
    assert sum(counts.values()) == batch * depth * (12 * width**2 * tokens + 2 * tokens**2 * width)
    assert counts["MultiHeadAttention"] == batch * depth * 2 * tokens**2 * width


RECURRENT = {
    "LSTM": (lambda: layers.LSTM(8, return_sequences=True), 7 * (6 + 8) * 4 * 8),
    "GRU": (lambda: layers.GRU(8), 7 * (6 + 8) * 3 * 8),
    "SimpleRNN": (lambda: layers.SimpleRNN(3), 7 * (6 + 3) * 3),
    "RNN": (lambda: layers.RNN([layers.LSTMCell(4), layers.GRUCell(5)]), 7 * ((6 + 4) * 4 * 4 + (4 + 5) * 3 * 5)),
}


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_layer_runs_for_every_step(kind: str) -> None:
    make, expected = RECURRENT[kind]
    found = figures(keras.Sequential([make()]), 4, (7, 6))
    (row,) = found.values()  # its cells are part of it
    assert (row.kind, row.multiply_adds) == (kind, 4 * expected)


def test_both_directions_count() -> None:
    counts = work(keras.Sequential([layers.Bidirectional(layers.LSTM(8))]), 4, (7, 6))
    assert counts == {"LSTM": 2 * 4 * 7 * (6 + 8) * 4 * 8}


def test_convolutions_of_every_kind() -> None:
    inputs = keras.Input((12, 12, 4))
    x = layers.Conv2D(8, 3, groups=2, name="grouped")(inputs)
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")(x)
    x = layers.SeparableConv2D(8, 3, name="separable")(x)
    x = layers.Conv2DTranspose(6, 3, strides=2, name="transposed")(x)
    found = figures(keras.Model(inputs, x), 2)
    assert {name: row.multiply_adds for name, row in found.items() if row.multiply_adds} == {
        "grouped": 2 * 100 * 9 * 2 * 8,
        "depthwise": 2 * 64 * 9 * 16,
        "separable": 2 * 36 * (9 * 16 + 16 * 8),
        "transposed": 2 * 36 * 8 * 9 * 6,
    }
    volume = keras.Sequential([keras.Input((6, 6, 6, 2)), layers.Conv3D(4, 3)])
    assert work(volume, 3) == {"Conv3D": 3 * 4**3 * 27 * 2 * 4}
    line = keras.Sequential([keras.Input((16, 2)), layers.Conv1D(4, 3)])
    assert work(line, 3) == {"Conv1D": 3 * 14 * 3 * 2 * 4}


class Shared(keras.Model):
    """A layer called twice, on inputs by name, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(3, name="dense")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.dense(inputs["a"]) + tf.reduce_sum(self.dense(inputs["b"]), 1)


def test_a_layer_called_twice_works_twice_and_weighs_once() -> None:
    model = Shared()
    row = figures(model, 3, {"a": (5,), "b": (4, 5)})["dense"]
    assert (row.calls, row.parameters, row.multiply_adds) == (2, 18, 3 * 15 + 3 * 4 * 15)
    assert row.input_shapes == ((3, 5), (3, 4, 5))
    assert figures(model, 6)["dense"].multiply_adds == 2 * row.multiply_adds  # now its inputs are known


def test_the_type_of_each_layer_under_a_mixed_policy() -> None:
    BRIDGE.set_global_policy("mixed_float16")
    inputs = keras.Input((7, 6))
    model = keras.Model(inputs, layers.Dense(3, dtype="float32")(layers.LSTM(8)(inputs)))
    rows = list(figures(model, 4).values())
    assert [row.compute_dtype for row in rows] == ["float16", "float32"]
    assert [{product.dtype for product in row.products} for row in rows] == [{"float16"}, {"float32"}]
    assert {weight.dtype for row in rows for weight in row.weights} == {"float32"}


class Scripted(layers.Layer):
    """Python code that no graph shows."""

    def call(self, inputs: Any) -> Any:
        return tf.reshape(tf.numpy_function(lambda value: value, [inputs], inputs.dtype), tf.shape(inputs))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


def test_what_cannot_be_counted_is_not_known() -> None:
    inputs = keras.Input((4,))
    found = figures(keras.Model(inputs, Scripted(name="scripted")(layers.Dense(4, name="dense")(inputs))), 2)
    assert found["scripted"].multiply_adds is None
    assert found["dense"].multiply_adds == 2 * 16


def test_a_stack_that_is_built_by_it_takes_any_batch_afterwards() -> None:
    model = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    model.compile("sgd", "mse")
    figures(model, 5, (3,))
    model.fit(np.zeros((6, 3)), np.zeros((6, 2)), batch_size=2, verbose=0)


def test_no_state_changes_and_nothing_is_drawn() -> None:
    def outputs(look: bool) -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5), layers.BatchNormalization()])
        weights = model.get_weights()
        if look:
            BRIDGE.layer_figures(model, 8)
        assert all(np.array_equal(old, new) for old, new in zip(weights, model.get_weights()))
        return np.array(model(np.arange(8, dtype="float32").reshape(2, 4), training=True))

    assert np.array_equal(outputs(look=False), outputs(look=True))


def test_shapes_that_are_not_known_are_said() -> None:
    with pytest.raises(BridgeError, match="a full shape of each input"):
        BRIDGE.layer_figures(encoder(1, 8, 2), 2)
    with pytest.raises(BridgeError, match="built or called"):
        BRIDGE.layer_figures(Shared(), 2)
    with pytest.raises(BridgeError, match="1 shapes, one for each input"):
        BRIDGE.layer_figures(KINDS["functional"](), 2, [(8, 8, 3), (4,)])
    with pytest.raises(BridgeError, match="can be called on these inputs"):
        BRIDGE.layer_figures(KINDS["functional"](), 2, (8, 8, 4))
