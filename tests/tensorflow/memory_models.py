"""Models that run out of memory where they are told to, by a tensor that no machine can hold."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tests.stack import keras, tf

LONG = 12  # a batch of this length asks for 256 TiB
ROWS = 4
HUGE = 2**23


class Greedy(keras.layers.Layer):  # type: ignore[misc]
    """Asks for a tensor of 256 TiB where a batch is long, or has more rows than it may."""

    def __init__(self, most_rows: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.most_rows = most_rows

    def call(self, inputs: Any) -> Any:
        too_long = tf.shape(inputs)[1] >= LONG
        if self.most_rows is not None:
            too_long = tf.shape(inputs)[0] > self.most_rows
        size = tf.where(too_long, HUGE, 1)
        return inputs + 1e-30 * tf.cast(tf.reduce_sum(tf.random.uniform([size, size])), inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


def lengths_data(*lengths: int, rows: int = ROWS) -> Any:
    """Batches of sequences of 2 features, one length each; the number of batches is known."""

    def batches() -> Any:
        random = np.random.default_rng(0)
        for length in lengths:
            x = random.normal(size=(rows, length, 2)).astype("float32")
            yield x, x.mean(axis=(1, 2), keepdims=False)[:, None]

    spec = (tf.TensorSpec((rows, None, 2)), tf.TensorSpec((rows, 1)))
    found = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return found.apply(tf.data.experimental.assert_cardinality(len(lengths)))


def greedy_model(optimizer: Any = None, first: bool = False, dropout: bool = True, **arguments: Any) -> Any:
    """A model with everything that a step may write: batch statistics, seeds, metrics, slots.

    Args:
        optimizer: Adam when None.
        first: Whether memory runs out before anything else is computed, instead of behind the batch statistics.
        dropout: Whether the dropout layer drops anything.
        arguments: For ``compile``.
    """
    keras.utils.set_random_seed(3)
    layers = [
        keras.layers.Dense(3),
        keras.layers.BatchNormalization(momentum=0.5),
        # Keras 2 keeps the state of a dropout layer in a kernel, which has drawn when the step fails.
        keras.layers.Dropout(0.2 if dropout else 0.0, seed=1),
    ]
    layers.insert(0 if first else 3, Greedy())
    model = keras.Sequential(
        [keras.Input((None, 2)), *layers, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
    )
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    model.compile(optimizer, "mse", **{"jit_compile": False, "metrics": ["mae"], **arguments})
    return model


def differing(one: Any, other: Any) -> list[str]:
    """Names of the variables of two trainings that do not have the same value."""
    from tfvolta.bridge import bridge_for

    pairs = [bridge_for(model).training_variables(model) for model in (one, other)]
    found = []
    for group, held in pairs[0].items():
        assert len(held) == len(pairs[1][group]), group
        for (name, left), (_, right) in zip(held, pairs[1][group]):
            if not np.allclose(left.numpy(), right.numpy(), rtol=1e-6, atol=1e-7):
                found.append(f"{group}: {name}: {left.numpy().ravel()[:3]} {right.numpy().ravel()[:3]}")
    return found
