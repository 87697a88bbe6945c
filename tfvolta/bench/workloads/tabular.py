"""Dense layers alone, and a small DLRM.

Source: Naumov et al., Deep Learning Recommendation Model (arXiv 1906.00091); layers as in MLPerf Training, with
tables that fit one card.
"""

from __future__ import annotations

from typing import Any

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload

_NUMBERS = 13
_TABLES = 26


def build_mlp(keras: Any, sizes: Sizes) -> Any:
    """Dense layers of one width, from vectors (batch, width) to logits (batch, classes)."""
    inputs = x = keras.Input((sizes.width,))
    for _ in range(int(sizes.layers or 0)):
        x = keras.layers.Dense(sizes.width, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(sizes.classes)(x), name="mlp")


def _interaction(keras: Any) -> Any:
    """A layer that multiplies every vector of an example with every other one: (batch, n, width) to (batch, pairs)."""
    import numpy as np
    import tensorflow as tf

    class Interaction(keras.layers.Layer):  # type: ignore[misc]
        """Scalar products below the diagonal."""

        def call(self, vectors: Any) -> Any:
            """Computes them."""
            count = int(vectors.shape[1])
            products = tf.matmul(vectors, vectors, transpose_b=True)
            rows, columns = np.tril_indices(count, -1)
            flat = tf.reshape(products, [-1, count * count])
            return tf.gather(flat, (rows * count + columns).astype("int32"), axis=1)

        def compute_output_shape(self, shape: Any) -> tuple[Any, int]:
            """Pairs of vectors."""
            return (shape[0], shape[1] * (shape[1] - 1) // 2)

    return Interaction()


def build_dlrm(keras: Any, sizes: Sizes) -> Any:
    """The model, from 13 numbers and 26 categories an example to one logit (batch, 1)."""
    width, words = int(sizes.width or 0), int(sizes.vocabulary or 0)
    numbers = keras.Input((_NUMBERS,), name="numbers")
    categories = keras.Input((_TABLES,), dtype="int32", name="categories")
    bottom = numbers
    for units in (4 * width, 2 * width, width):
        bottom = keras.layers.Dense(units, activation="relu")(bottom)
    vectors = [keras.layers.Reshape((1, width))(bottom)]
    for table in range(_TABLES):
        column = keras.layers.Lambda(lambda x, i=table: x[:, i : i + 1], output_shape=(1,))(categories)
        vectors.append(keras.layers.Embedding(words, width)(column))
    pairs = _interaction(keras)(keras.layers.Concatenate(axis=1)(vectors))
    x = keras.layers.Concatenate()([bottom, pairs])
    for units in (8 * width, 8 * width, 4 * width, 2 * width):
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model([numbers, categories], keras.layers.Dense(1)(x), name="dlrm")


WORKLOADS = (
    Workload(
        name="mlp",
        description="dense layers of one width",
        sizes=Sizes(1024, layers=8, width=4096, classes=1000),
        tiny=Sizes(32, layers=2, width=64, classes=10),
        build=build_mlp,
        data=synthetic.vectors,
        learning_rate=0.01,
    ),
    Workload(
        name="dlrm_small",
        description="DLRM (arXiv 1906.00091) with 26 tables of 100,000 rows",
        sizes=Sizes(16384, width=128, vocabulary=100_000),
        tiny=Sizes(32, width=8, vocabulary=100),
        build=build_dlrm,
        data=synthetic.clicks,
        learning_rate=0.1,
        loss="binary",
    ),
)
