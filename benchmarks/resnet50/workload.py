"""ResNet-50 on synthetic images held in host memory: the model, the data and the clock that all variants share."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import tensorflow as tf

keras = tf.keras


def parse_arguments() -> argparse.Namespace:
    """The command line that every variant takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=224)
    return parser.parse_args()


def make_dataset(arguments: argparse.Namespace) -> tf.data.Dataset:
    """One batch of float32 images and integer labels, repeated for an epoch: no input work beyond the copy."""
    generator = np.random.default_rng(0)
    shape = (arguments.batch_size, arguments.image_size, arguments.image_size, 3)
    images = generator.standard_normal(shape, dtype=np.float32)
    labels = generator.integers(0, 1000, size=arguments.batch_size).astype("int32")
    return tf.data.Dataset.from_tensors((images, labels)).repeat(arguments.steps).prefetch(2)


class EpochClock(keras.callbacks.Callback):
    """Wall seconds of each epoch; the end of an epoch waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def report(name: str, arguments: argparse.Namespace, clock: EpochClock, history: keras.callbacks.History) -> None:
    """Prints one JSON line: images a second of the better measured epoch, the first one being warm-up."""
    images = arguments.batch_size * arguments.steps
    rates = [images / seconds for seconds in clock.seconds]
    memory = None
    if tf.config.list_physical_devices("GPU"):
        memory = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30
    print(
        "RESULT "
        + json.dumps(
            {
                "variant": name,
                "images_per_second": max(rates[1:]) if len(rates) > 1 else rates[0],
                "images_per_second_by_epoch": rates,
                "first_epoch_seconds": clock.seconds[0],
                "peak_gib": memory,
                "loss": history.history["loss"],
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            }
        ),
        flush=True,
    )
