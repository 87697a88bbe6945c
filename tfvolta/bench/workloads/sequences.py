"""Two LSTM layers behind an embedding."""

from __future__ import annotations

from typing import Any

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload


def build(keras: Any, sizes: Sizes) -> Any:
    """The model, from tokens (batch, tokens) to logits (batch, classes)."""
    inputs = keras.Input((sizes.tokens,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(sizes.vocabulary, sizes.width)(inputs)
    count = int(sizes.layers or 0)
    for number in range(count):
        x = keras.layers.LSTM(sizes.width, return_sequences=number < count - 1)(x)
    return keras.Model(inputs, keras.layers.Dense(sizes.classes)(x), name="lstm")


WORKLOADS = (
    Workload(
        name="lstm",
        description="two LSTM layers of 1024 behind an embedding of 10,000 words",
        sizes=Sizes(256, tokens=128, layers=2, width=1024, vocabulary=10_000, classes=1000),
        tiny=Sizes(8, tokens=8, layers=1, width=16, vocabulary=50, classes=4),
        build=build,
        data=synthetic.tokens,
        optimizer="adam",
        learning_rate=1e-3,
        unit="sequences",
    ),
)
