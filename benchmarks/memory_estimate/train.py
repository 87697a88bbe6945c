"""ResNet-50, a BERT-large encoder or two LSTM layers on synthetic data: an ordinary script without tfvolta."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers
TOKENS = 128


def resnet50() -> Any:
    """224 px, 1000 classes."""
    return keras.applications.ResNet50(weights=None)


def bert_large() -> Any:
    """24 layers of 1024 with 16 heads, 128 tokens, a vocabulary of 30,522 and two classes."""
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = layers.LayerNormalization()(layers.Embedding(30522, 1024)(tokens))
    for _ in range(24):
        attended = layers.MultiHeadAttention(16, 64, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
        hidden = layers.Dense(1024)(layers.Dense(4096, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(hidden))
    return keras.Model(tokens, layers.Dense(2, activation="softmax", dtype="float32")(x[:, 0]))


def lstm() -> Any:
    """Two layers of 1024 on 128 steps of 1024 features."""
    body = [layers.LSTM(1024, return_sequences=True), layers.LSTM(1024)]
    return keras.Sequential(
        [keras.Input((TOKENS, 1024)), *body, layers.Dense(10, activation="softmax", dtype="float32")]
    )


INPUTS = {"resnet50": ((224, 224, 3), 1000), "bert_large": ((TOKENS,), 2), "lstm": ((TOKENS, 1024), 10)}


def dataset(model: str, batch: int, steps: int) -> tf.data.Dataset:
    """One batch in host memory, repeated."""
    shape, classes = INPUTS[model]
    generator = np.random.default_rng(0)
    if model == "bert_large":
        x: Any = generator.integers(0, 30522, size=(batch, *shape)).astype("int32")
    else:
        x = generator.standard_normal((batch, *shape), dtype=np.float32)
    labels = generator.integers(0, classes, size=batch).astype("int32")
    return tf.data.Dataset.from_tensors((x, labels)).repeat(steps).prefetch(2)


def main() -> None:
    """Trains a few steps; with ``--measure`` prints the peak that the allocator counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=sorted(INPUTS))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--measure", action="store_true")
    arguments = parser.parse_args()
    model = {"resnet50": resnet50, "bert_large": bert_large, "lstm": lstm}[arguments.model]()
    optimizer = (
        keras.optimizers.SGD(0.01, momentum=0.9) if arguments.model == "resnet50" else keras.optimizers.Adam(1e-4)
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    model.fit(dataset(arguments.model, arguments.batch, arguments.steps), epochs=1, verbose=0)
    if arguments.measure:
        gpus = tf.config.list_physical_devices("GPU")
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] if gpus else None
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name") if gpus else None
        said = {"peak_gib": peak and round(peak / 2**30, 3), "gpu": name}
        print(json.dumps({**said, "tensorflow": tf.__version__, "keras": keras.__version__}))


if __name__ == "__main__":
    main()
