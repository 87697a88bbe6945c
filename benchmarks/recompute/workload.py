"""The two models that are measured, of any size, on any Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def transformer(keras: Any, size: dict[str, int]) -> Any:
    """An encoder of BERT's shape: 24 blocks of 1024 features, 16 heads and 4096 hidden units by default."""
    layers, width = keras.layers, size["width"]
    inputs = keras.Input((size["tokens"],), dtype="int32")
    tensor = layers.Embedding(size["vocabulary"], width)(inputs)
    tensor = layers.Dropout(0.1)(layers.LayerNormalization()(tensor))
    for _ in range(size["blocks"]):
        heads = layers.MultiHeadAttention(size["heads"], width // size["heads"], dropout=0.1)
        attended = layers.Dropout(0.1)(heads(query=tensor, value=tensor, key=tensor))
        tensor = layers.LayerNormalization()(layers.Add()([tensor, attended]))
        hidden = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(tensor))
        tensor = layers.LayerNormalization()(layers.Add()([tensor, layers.Dropout(0.1)(hidden)]))
    pooled = layers.Dense(width, activation="tanh")(layers.GlobalAveragePooling1D()(tensor))
    return keras.Model(inputs, layers.Dense(2, dtype="float32")(pooled))


def resnet152(keras: Any, size: dict[str, int]) -> Any:
    """ResNet-152 as Keras has it, without weights."""
    shape = (size["pixels"], size["pixels"], 3)
    return keras.applications.ResNet152(weights=None, input_shape=shape, classes=1000, classifier_activation=None)


MODELS = {"transformer": transformer, "resnet152": resnet152}


def data_of(name: str, size: dict[str, int], batch: int) -> Any:
    """The same batch again and again, of a static shape."""
    random = np.random.default_rng(0)
    if name == "transformer":
        inputs: Any = random.integers(0, size["vocabulary"], (batch, size["tokens"])).astype("int32")
        labels = random.integers(0, 2, batch)
    else:
        inputs = random.random((batch, size["pixels"], size["pixels"], 3), dtype="float32")
        labels = random.integers(0, 1000, batch)
    one = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(batch, drop_remainder=True).cache()
    return one.repeat().prefetch(2)
