"""Models that the rules of ``xla.jit: auto`` were not written on; each at a tiny size for a CPU and a full one."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and its batch.

    Attributes:
        model: The model, not compiled.
        batch: ``(x, y)``, as arrays.
        loss: Name of the loss.
    """

    model: Any
    batch: tuple[Any, Any]
    loss: str


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape).astype("float32")


def _tokens(below: int, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, below, shape).astype("int32")


def mlp(keras: Any, full: bool) -> Workload:
    """A small multi-layer perceptron, whose step is mostly launches of kernels."""
    width, rows = (256, 512) if full else (8, 8)
    dense = [keras.layers.Dense(width, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((width,)), *dense, keras.layers.Dense(1)])
    return Workload(model, (_numbers(rows, width), _numbers(rows, 1)), "mse")


def recommender(keras: Any, full: bool) -> Workload:
    """Nearly all weights in embeddings, of which a step touches a few rows."""
    ids, width, rows = (1_000_000, 64, 8192) if full else (50, 4, 8)
    inputs = keras.Input((2,), dtype="int32")
    pair = keras.layers.Flatten()(keras.layers.Embedding(ids, width)(inputs))
    outputs = keras.layers.Dense(1)(keras.layers.Dense(width, activation="relu")(pair))
    return Workload(keras.Model(inputs, outputs), (_tokens(ids, rows, 2), _numbers(rows, 1)), "mse")


def _image_head(keras: Any, inputs: Any, outputs: Any) -> Any:
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(outputs)))


def convolutions(keras: Any, full: bool) -> Workload:
    """A small convolutional network with batch normalization."""
    side, width, rows = (64, 64, 256) if full else (8, 4, 4)
    inputs = outputs = keras.Input((side, side, 3))
    for number in range(4 if full else 2):
        outputs = keras.layers.Conv2D(width * 2 ** (number // 2), 3, padding="same", use_bias=False)(outputs)
        outputs = keras.layers.ReLU()(keras.layers.BatchNormalization()(outputs))
    return Workload(_image_head(keras, inputs, outputs), (_numbers(rows, side, side, 3), _numbers(rows, 10)), "mse")


def separable(keras: Any, full: bool) -> Workload:
    """Depthwise convolutions, which have few multiplications for each byte."""
    side, width, rows = (96, 96, 128) if full else (8, 4, 4)
    inputs = outputs = keras.Input((side, side, 3))
    for _ in range(6 if full else 2):
        outputs = keras.layers.SeparableConv2D(width, 3, padding="same")(outputs)
        outputs = keras.layers.ReLU()(keras.layers.BatchNormalization()(outputs))
    return Workload(_image_head(keras, inputs, outputs), (_numbers(rows, side, side, 3), _numbers(rows, 10)), "mse")


def u_net(keras: Any, full: bool) -> Workload:
    """Down and up again, with the finer levels joined on the way."""
    side, width, rows, levels = (128, 32, 32, 3) if full else (8, 4, 2, 2)
    inputs = outputs = keras.Input((side, side, 3))
    kept = []
    for level in range(levels):
        outputs = keras.layers.Conv2D(width * 2**level, 3, padding="same", activation="relu")(outputs)
        kept.append(outputs)
        outputs = keras.layers.MaxPooling2D()(outputs)
    for level in reversed(range(levels)):
        outputs = keras.layers.Conv2DTranspose(width * 2**level, 2, strides=2)(outputs)
        outputs = keras.layers.Concatenate()([outputs, kept[level]])
        outputs = keras.layers.Conv2D(width * 2**level, 3, padding="same", activation="relu")(outputs)
    outputs = keras.layers.Conv2D(1, 1)(outputs)
    return Workload(keras.Model(inputs, outputs), (_numbers(rows, side, side, 3), _numbers(rows, side, side, 1)), "mse")


def recurrent(keras: Any, full: bool, kind: str) -> Workload:
    """Two recurrent layers over sequences."""
    length, width, rows = (128, 256, 256) if full else (4, 4, 4)
    layer = getattr(keras.layers, kind)
    layers = [layer(width, return_sequences=True), layer(width), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((length, width)), *layers])
    return Workload(model, (_numbers(rows, length, width), _numbers(rows, 1)), "mse")


def transformer(keras: Any, full: bool) -> Workload:
    """Encoder blocks over tokens."""
    words, length, width, rows, blocks = (30528, 128, 512, 64, 6) if full else (50, 4, 8, 4, 1)
    inputs = keras.Input((length,), dtype="int32")
    outputs = keras.layers.Embedding(words, width)(inputs)
    for _ in range(blocks):
        found = keras.layers.MultiHeadAttention(max(2, width // 64), width // max(2, width // 64))(outputs, outputs)
        outputs = keras.layers.LayerNormalization()(keras.layers.Add()([outputs, found]))
        hidden = keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation="gelu")(outputs))
        outputs = keras.layers.LayerNormalization()(keras.layers.Add()([outputs, hidden]))
    model = keras.Model(inputs, keras.layers.Dense(words)(outputs))
    return Workload(
        model, (_tokens(words, rows, length), _tokens(words, rows, length)), "sparse_categorical_crossentropy"
    )


def one_dimensional(keras: Any, full: bool) -> Workload:
    """Dilated convolutions over a signal."""
    length, width, rows = (4096, 64, 64) if full else (16, 4, 4)
    inputs = outputs = keras.Input((length, 1))
    for number in range(6 if full else 2):
        step = keras.layers.Conv1D(width, 3, padding="causal", dilation_rate=2**number, activation="relu")(outputs)
        outputs = step if number == 0 else keras.layers.Add()([outputs, step])
    outputs = keras.layers.Conv1D(1, 1)(outputs)
    return Workload(keras.Model(inputs, outputs), (_numbers(rows, length, 1), _numbers(rows, length, 1)), "mse")


def autoencoder(keras: Any, full: bool) -> Workload:
    """Wide dense layers: matrix products and little besides."""
    width, rows = (4096, 1024) if full else (8, 8)
    sizes = (width // 2, width // 4, width // 2, width)
    model = keras.Sequential([keras.Input((width,)), *[keras.layers.Dense(size, activation="tanh") for size in sizes]])
    data = _numbers(rows, width)
    return Workload(model, (data, data), "mse")


MODELS: dict[str, Callable[[Any, bool], Workload]] = {
    "mlp": mlp,
    "recommender": recommender,
    "convolutions": convolutions,
    "separable": separable,
    "u_net": u_net,
    "gru": lambda keras, full: recurrent(keras, full, "GRU"),
    "lstm": lambda keras, full: recurrent(keras, full, "LSTM"),
    "transformer": transformer,
    "one_dimensional": one_dimensional,
    "autoencoder": autoencoder,
}
