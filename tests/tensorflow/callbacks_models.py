"""Small models of every kind, and the data that they train on."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, keras, tf


def rows(count: int = 44) -> tuple[Any, Any]:
    """Inputs of 8 features and a learnable target."""
    x = np.random.default_rng(0).normal(size=(count, 8)).astype("float32")
    return x, x[:, :1] * 0.5


def dataset(count: int = 44, batch: int = 4) -> Any:
    """The same rows in batches; the last one may be smaller."""
    return tf.data.Dataset.from_tensor_slices(rows(count)).batch(batch)


def sequential() -> Any:
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])


def functional() -> Any:
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(4, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def nested() -> Any:
    inputs = keras.Input((8,))
    return keras.Model(inputs, keras.layers.Dense(1)(sequential()(inputs)))


class Subclassed(keras.Model):  # type: ignore[misc]
    """A model that is not built before its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(4, activation="relu")
        self.out = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))


class OwnStep(Subclassed):
    """A model with a training step of its own, which keeps no loss tracker."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            scale = getattr(self.optimizer, "scale_loss", None) or getattr(self.optimizer, "get_scaled_loss", None)
            scaled = loss if scale is None else scale(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        if not KERAS3 and scale is not None:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


KINDS: dict[str, Callable[[], Any]] = {
    "sequential": sequential,
    "functional": functional,
    "nested": nested,
    "subclassed": Subclassed,
    "own_step": OwnStep,
}


def compiled(kind: str = "sequential", **arguments: Any) -> Any:
    """A model of a kind, compiled with Adam and a squared error."""
    keras.utils.set_random_seed(1)
    model = KINDS[kind]()
    model.compile(keras.optimizers.Adam(0.01), "mse", **{"jit_compile": False, **arguments})
    return model
