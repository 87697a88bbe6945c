"""ResNet-50 on synthetic images: an ordinary script without tfvolta, whose batch ``tfvolta batch-size`` looks for."""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf

keras = tf.keras


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--model", default="ResNet50", help="a class of keras.applications")
    return parser.parse_args()


def main() -> None:
    """Trains a few steps."""
    arguments = parse_arguments()
    pixels = arguments.pixels
    shape = (pixels, pixels, 3)
    model = getattr(keras.applications, arguments.model)(weights=None, input_shape=shape, classes=1000)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    image = np.random.default_rng(0).random((1, *shape), dtype="float32")
    data = tf.data.Dataset.from_tensors((image[0], np.int64(1))).repeat()
    data = data.batch(arguments.batch, drop_remainder=True).prefetch(2)
    model.fit(data, steps_per_epoch=arguments.steps, verbose=0)
    if tf.config.list_logical_devices("GPU"):
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        print(f"peak_bytes {peak}", flush=True)


if __name__ == "__main__":
    main()
