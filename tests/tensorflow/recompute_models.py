"""Models whose activations are computed again, and plain training beside."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from tests.stack import keras, tf
from tfvolta.callbacks import GradientCheckpointing

layers = keras.layers
FEATURES = np.random.RandomState(0).rand(32, 8).astype("float32")
LABELS = FEATURES[:, :1].copy()
TOKENS = np.random.RandomState(1).randint(0, 20, (32, 6)).astype("int32")
BATCH = 8


def sequential() -> Any:
    """Dense, batch norm and dropout in a row."""
    parts = [keras.Input((8,)), layers.Dense(16, activation="relu"), layers.BatchNormalization(momentum=0.5)]
    parts += [layers.Dropout(0.4), layers.Dense(8), layers.BatchNormalization(momentum=0.5), layers.Dense(1)]
    return keras.Sequential(parts)


def residual(rate: float = 0.3) -> Any:
    """Residual blocks in a functional graph."""
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(1, name="head", dtype="float32")(_blocks(inputs, rate)))


def nested() -> Any:
    """The same blocks in a model inside."""
    inputs, inner = keras.Input((8,)), keras.Input((8,))
    body = keras.Model(inner, _blocks(inner), name="body")
    return keras.Model(inputs, layers.Dense(1)(body(inputs)))


def _blocks(tensor: Any, rate: float = 0.3) -> Any:
    tensor = layers.Dense(16, name="stem")(tensor)
    for number in range(3):
        inside = layers.Dense(16, activation="relu", name=f"dense{number}")(tensor)
        inside = layers.BatchNormalization(momentum=0.5, name=f"norm{number}")(inside)
        inside = layers.Dropout(rate, name=f"drop{number}")(inside)
        tensor = layers.Add(name=f"add{number}")([tensor, inside])
    return tensor


class Block(layers.Layer):
    """A block with code of its own: a keyword tensor, a flag, and a dictionary as its result."""

    def __init__(self, **keywords: Any):
        super().__init__(**keywords)
        self.dense = layers.Dense(16, activation="relu")
        self.norm = layers.BatchNormalization(momentum=0.5)
        self.drop = layers.Dropout(0.3)

    def call(self, inputs: Any, scale: Any = None, flag: bool = False, training: Any = None) -> Any:
        inside = self.norm(self.dense(inputs), training=training)
        return {"result": inputs + self.drop(inside * scale if flag else inside, training=training), "scale": scale}


class Subclassed(keras.Model):
    """Blocks in a list, called by the model's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = layers.Dense(16)
        self.blocks = [Block() for _ in range(3)]
        self.head = layers.Dense(1)

    def call(self, inputs: Any, training: Any = None) -> Any:
        tensor = self.stem(inputs)
        scale = tf.nn.sigmoid(tensor)
        for block in self.blocks:
            found = block(tensor, scale=scale, flag=True, training=training)
            tensor, scale = found["result"], found["scale"]
        return self.head(tensor)


def attention() -> Any:
    """Masks, attention with keyword tensors and dropout of its own, and a recurrent layer."""
    inputs = keras.Input((6,), dtype="int32")
    tensor = layers.Embedding(20, 16, mask_zero=True)(inputs)
    attended = layers.MultiHeadAttention(2, 8, dropout=0.1)(query=tensor, value=tensor, key=tensor)
    tensor = layers.LayerNormalization()(layers.Add()([tensor, layers.Dropout(0.1)(attended)]))
    return keras.Model(inputs, layers.Dense(1)(layers.LSTM(8, dropout=0.2)(tensor)))


def branches() -> Any:
    """Two inputs, two outputs, a layer that both inputs share, and operations outside of layers."""
    inputs = [keras.Input((8,)), keras.Input((8,))]
    shared = layers.Dense(8, activation="relu", name="shared")
    norm = layers.BatchNormalization(momentum=0.5)
    tensor = layers.Concatenate()([norm(shared(each)) for each in inputs]) * 2.0 + 1.0
    return keras.Model(
        inputs, [layers.Dense(1, name="one")(tensor), layers.Dense(1, name="two")(layers.Dropout(0.2)(tensor))]
    )


def data_of(make: Callable[[], Any]) -> tuple[Any, Any]:
    """What a model is fitted to."""
    if make is attention:
        return TOKENS, LABELS
    if make is branches:
        return [FEATURES, FEATURES * 0.5], [LABELS, LABELS]
    return FEATURES, LABELS


def trained(
    make: Callable[[], Any], callback: Optional[Any] = None, **arguments: Any
) -> tuple[Any, list[float], list[Any]]:
    """A model after a short fit from one seed, its losses, and how far its weights went."""
    keras.utils.set_random_seed(3)
    model = make()
    model.compile(**{"optimizer": keras.optimizers.SGD(0.01), "loss": "mse", **arguments})
    inputs, labels = data_of(make)
    if not model.built:
        model(tf.constant(inputs[:1]))
    keras.utils.set_random_seed(4)
    before = [np.array(weight) for weight in model.get_weights()]
    callbacks = [] if callback is None else [callback]
    history = model.fit(inputs, labels, BATCH, 2, verbose=0, shuffle=False, callbacks=callbacks)
    return model, history.history["loss"], [after - former for former, after in zip(before, model.get_weights())]


def distance(plain: list[Any], other: list[Any]) -> float:
    """Largest difference of two models' steps, relative to the largest step."""
    largest = max(float(np.abs(each).max()) for each in plain)
    return max(float(np.abs(one - two).max()) for one, two in zip(plain, other)) / largest


def again(**arguments: Any) -> Any:
    """The callback."""
    return GradientCheckpointing(**arguments)


def outcome(callback: Any) -> Any:
    """How its setting ended."""
    return callback.session.endings["recompute"].outcome
