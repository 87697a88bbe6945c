"""Trains a residual network on scikit-learn's 1,797 handwritten digits and prints its test accuracy.

Full size on a GPU: resnet.py --size 224 --width 64 --blocks 3,4,6,3 --batch 256
"""

import argparse
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

keras = tf.keras
layers = keras.layers


def load_data(size):
    """The digits as square images with values from 0 to 1, split into 80 % for training and 20 % for testing.

    Args:
        size: Pixels of a side; the images are enlarged from 8 x 8, or made smaller.
    """
    digits = load_digits()
    images = (digits.images / 16.0).astype("float32")[..., np.newaxis]
    if size != 8:
        images = tf.image.resize(images, (size, size)).numpy()
    return train_test_split(
        images, digits.target.astype("int32"), test_size=0.2, random_state=0, stratify=digits.target
    )


def convolution(x, filters, kernel, strides=1, activation=True):
    """A convolution with batch normalisation."""
    x = layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x) if activation else x


def block(x, filters, strides):
    """A bottleneck block: 1 x 1, 3 x 3, 1 x 1, and the way around it."""
    around = x
    if strides != 1 or x.shape[-1] != 4 * filters:
        around = convolution(x, 4 * filters, 1, strides, activation=False)
    x = convolution(x, filters, 1, strides)
    x = convolution(x, filters, 3)
    x = convolution(x, 4 * filters, 1, activation=False)
    return layers.ReLU()(layers.Add()([x, around]))


def make_model(size, width, blocks):
    """A residual network with one stage for each number of blocks; (3, 4, 6, 3) of width 64 is ResNet-50.

    Args:
        size: Pixels of a side.
        width: Channels of the first stage; each later one has twice as many.
        blocks: Blocks of each stage.
    """
    inputs = layers.Input((size, size, 1))
    if size >= 64:
        x = convolution(inputs, width, 7, 2)
        x = layers.MaxPooling2D(3, 2, padding="same")(x)
    else:
        x = convolution(inputs, width, 3)
    for stage, count in enumerate(blocks):
        for number in range(count):
            x = block(x, width * 2**stage, 2 if stage and not number else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x), name="resnet")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=8, help="pixels of a side")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--blocks", default="1,1", help="blocks of each stage")
    arguments = parser.parse_args()

    train_images, test_images, train_labels, test_labels = load_data(arguments.size)
    keras.utils.set_random_seed(0)
    model = make_model(arguments.size, arguments.width, [int(count) for count in arguments.blocks.split(",")])
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    started = time.perf_counter()
    model.fit(train_images, train_labels, batch_size=arguments.batch, epochs=arguments.epochs, verbose=2)
    seconds = time.perf_counter() - started
    _, accuracy = model.evaluate(test_images, test_labels, batch_size=arguments.batch, verbose=0)
    print(f"test accuracy {accuracy:.4f} (guessing: 0.1000) after {arguments.epochs} epochs in {seconds:.1f} s")


if __name__ == "__main__":
    main()
