"""BERT as an encoder with a classifier, and the Transformer for translation.

Sources: Devlin, Chang, Lee, Toutanova, BERT (arXiv 1810.04805); Vaswani et al., Attention Is All You Need (arXiv
1706.03762), the base model with one embedding for source, target and output.
"""

from __future__ import annotations

import math
from typing import Any

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload

_POSITIONS = 512
_HEAD = 64
_DROPOUT = 0.1


def _heads(width: int) -> int:
    return max(1, width // _HEAD)


def _attended(keras: Any, x: Any, memory: Any, causal: bool = False) -> Any:
    """Attention of one sequence to another or to itself, with residual and normalisation behind it."""
    width = int(x.shape[-1])
    attention = keras.layers.MultiHeadAttention(_heads(width), width // _heads(width), dropout=_DROPOUT)
    attended = attention(x, memory, use_causal_mask=True) if causal else attention(x, memory)
    added = keras.layers.Add()([x, keras.layers.Dropout(_DROPOUT)(attended)])
    return keras.layers.LayerNormalization(epsilon=1e-6)(added)


def _fed_forward(keras: Any, x: Any, activation: str) -> Any:
    width = int(x.shape[-1])
    hidden = keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation=activation)(x))
    added = keras.layers.Add()([x, keras.layers.Dropout(_DROPOUT)(hidden)])
    return keras.layers.LayerNormalization(epsilon=1e-6)(added)


def _positions(keras: Any, width: int) -> Any:
    """A layer that adds an embedding of the place, and of the first segment, to (batch, tokens, width)."""

    class Positions(keras.layers.Layer):  # type: ignore[misc]
        """Learnt embeddings of 512 places and two segments; there is one segment."""

        def build(self, shape: Any) -> None:
            """Makes both tables."""
            self.places = self.add_weight(name="places", shape=(_POSITIONS, width), initializer="uniform")
            self.segments = self.add_weight(name="segments", shape=(2, width), initializer="uniform")
            super().build(shape)

        def call(self, x: Any) -> Any:
            """Adds them."""
            import tensorflow as tf

            added = tf.convert_to_tensor(self.places)[: x.shape[1]] + tf.convert_to_tensor(self.segments)[0]
            return x + tf.cast(added, x.dtype)

        def compute_output_shape(self, shape: Any) -> Any:
            """That of the input."""
            return shape

    return Positions()


def build_bert(keras: Any, sizes: Sizes) -> Any:
    """The encoder with pooler and classifier, from tokens (batch, tokens) to logits (batch, classes)."""
    width = int(sizes.width or 0)
    inputs = keras.Input((sizes.tokens,), dtype="int32", name="tokens")
    x = _positions(keras, width)(keras.layers.Embedding(sizes.vocabulary, width)(inputs))
    x = keras.layers.Dropout(_DROPOUT)(keras.layers.LayerNormalization(epsilon=1e-6)(x))
    for _ in range(int(sizes.layers or 0)):
        x = _fed_forward(keras, _attended(keras, x, x), "gelu")
    first = keras.layers.Lambda(lambda tokens: tokens[:, 0], output_shape=(width,))(x)
    pooled = keras.layers.Dropout(_DROPOUT)(keras.layers.Dense(width, activation="tanh")(first))
    return keras.Model(inputs, keras.layers.Dense(sizes.classes)(pooled), name="bert")


def _shared_embedding(keras: Any, words: int, width: int) -> Any:
    """A layer that looks words up, adds sines of their places, and turns vectors into logits with the same table."""

    class SharedEmbedding(keras.layers.Layer):  # type: ignore[misc]
        """One table for source, target and output."""

        def build(self, shape: Any) -> None:
            """Makes the table."""
            start = keras.initializers.RandomNormal(stddev=width**-0.5)
            self.table = self.add_weight(name="table", shape=(words, width), initializer=start)
            super().build(shape)

        def call(self, x: Any, to_words: bool = False) -> Any:
            """Vectors (batch, tokens, width) of tokens, or logits (batch, tokens, words) of vectors."""
            import tensorflow as tf

            table = tf.cast(tf.convert_to_tensor(self.table), self.compute_dtype)
            if to_words:
                return tf.matmul(x, table, transpose_b=True)
            places = tf.constant(_sines(int(x.shape[1]), width), self.compute_dtype)
            return tf.gather(table, x) * math.sqrt(width) + places

    return SharedEmbedding()


def _sines(length: int, width: int) -> Any:
    """Sines and cosines of the place, (length, width); arXiv 1706.03762, section 3.5."""
    import numpy as np

    angles = np.arange(length)[:, None] / 10000 ** (2 * (np.arange(width) // 2) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles)).astype("float32")


def build_transformer(keras: Any, sizes: Sizes) -> Any:
    """Encoder and decoder, from source and target (batch, tokens) to logits (batch, tokens, words)."""
    source = keras.Input((sizes.tokens,), dtype="int32", name="source")
    target = keras.Input((sizes.tokens,), dtype="int32", name="target")
    embedding = _shared_embedding(keras, int(sizes.vocabulary or 0), int(sizes.width or 0))
    memory = keras.layers.Dropout(_DROPOUT)(embedding(source))
    for _ in range(int(sizes.layers or 0)):
        memory = _fed_forward(keras, _attended(keras, memory, memory), "relu")
    x = keras.layers.Dropout(_DROPOUT)(embedding(target))
    for _ in range(int(sizes.layers or 0)):
        x = _attended(keras, _attended(keras, x, x, causal=True), memory)
        x = _fed_forward(keras, x, "relu")
    return keras.Model([source, target], embedding(x, to_words=True), name="transformer")


def _bert(name: str, layers: int, width: int, batch: int) -> Workload:
    return Workload(
        name=name,
        description=f"{name.replace('bert_', 'BERT-')} (arXiv 1810.04805), encoder with a classifier",
        sizes=Sizes(batch, tokens=128, layers=layers, width=width, vocabulary=30522, classes=2),
        tiny=Sizes(8, tokens=8, layers=1, width=16, vocabulary=50, classes=2),
        build=build_bert,
        data=synthetic.tokens,
        optimizer="adam",
        learning_rate=2e-5,
        unit="sequences",
    )


WORKLOADS = (
    _bert("bert_large", 24, 1024, 64),
    _bert("bert_base", 12, 768, 128),
    Workload(
        name="transformer",
        description="Transformer base (arXiv 1706.03762), six layers each way, 37,000 words",
        sizes=Sizes(64, tokens=128, layers=6, width=512, vocabulary=37_000),
        tiny=Sizes(8, tokens=8, layers=1, width=16, vocabulary=50),
        build=build_transformer,
        data=synthetic.translations,
        optimizer="adam",
        learning_rate=1e-4,
        unit="sequences",
    ),
)
