"""ResNet-50, a BERT-large encoder or two LSTM layers on synthetic data: an ordinary script without tfvolta.

``--small`` takes the same kinds of layers in small, to try a measurement out on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers
TOKENS = 128


def resnet50(small: bool) -> Any:
    """224 px, 1000 classes; in small 32 px and one stage."""
    if not small:
        return keras.applications.ResNet50(weights=None)
    inputs = x = keras.Input((32, 32, 3))
    for _ in range(3):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(x)))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def bert_large(small: bool) -> Any:
    """24 layers of 1024 with 16 heads, 128 tokens, a vocabulary of 30,522 and two classes; in small 2 layers of 64."""
    depth, width, words = (2, 64, 100) if small else (24, 1024, 30522)
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = layers.LayerNormalization()(layers.Embedding(words, width)(tokens))
    for _ in range(depth):
        attended = layers.MultiHeadAttention(16, width // 16, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(attended))
        hidden = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(hidden))
    return keras.Model(tokens, layers.Dense(2, activation="softmax", dtype="float32")(x[:, 0]))


def lstm(small: bool) -> Any:
    """Two layers of 1024 on 128 steps of 1024 features; in small of 32."""
    width = 32 if small else 1024
    body = [layers.LSTM(width, return_sequences=True), layers.LSTM(width)]
    return keras.Sequential(
        [keras.Input((TOKENS, width)), *body, layers.Dense(10, activation="softmax", dtype="float32")]
    )


MODELS = {"resnet50": resnet50, "bert_large": bert_large, "lstm": lstm}


def dataset(model: Any, batch: int, steps: int) -> tf.data.Dataset:
    """One batch in host memory, repeated."""
    generator = np.random.default_rng(0)
    shape, classes = model.input_shape[1:], model.output_shape[-1]
    if len(shape) == 1:  # tokens
        x: Any = generator.integers(0, 100, size=(batch, *shape)).astype("int32")
    else:
        x = generator.standard_normal((batch, *shape), dtype=np.float32)
    labels = generator.integers(0, classes, size=batch).astype("int32")
    return tf.data.Dataset.from_tensors((x, labels)).repeat(steps).prefetch(2)


def process_bytes() -> Any:
    """What the driver has given this process of the first GPU, CUDA's own memory included; None if it is not told."""
    try:
        import pynvml

        pynvml.nvmlInit()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
        return next((each.usedGpuMemory for each in processes if each.pid == os.getpid()), None)
    except Exception:  # a figure more, wherever it is told
        return None


def main() -> None:
    """Trains a few steps; with ``--measure`` prints the peak since the last reset that the allocator counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    model = MODELS[arguments.model](arguments.small)
    optimizer = (
        keras.optimizers.SGD(0.01, momentum=0.9) if arguments.model == "resnet50" else keras.optimizers.Adam(1e-4)
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    model.fit(dataset(model, arguments.batch, arguments.steps), epochs=1, verbose=0)
    if arguments.measure:
        gpus = tf.config.list_physical_devices("GPU")
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] if gpus else None
        name = tf.config.experimental.get_device_details(gpus[0]).get("device_name") if gpus else None
        said = {"peak_gib": peak and round(peak / 2**30, 3), "process_bytes": process_bytes(), "gpu": name}
        version = getattr(keras, "__version__", "")
        print(json.dumps({**said, "tensorflow": tf.__version__, "keras": version}))


if __name__ == "__main__":
    main()
