"""Trains a small convolutional network on scikit-learn's 1,797 handwritten digits and prints its test accuracy."""

import argparse
import time

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

keras = tf.keras


def load_data():
    """The digits as 8 x 8 images with values from 0 to 1, split into 80 % for training and 20 % for testing."""
    digits = load_digits()
    images = (digits.images / 16.0).astype("float32")[..., np.newaxis]
    labels = digits.target.astype("int32")
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def make_model():
    """A network of two convolutions with batch normalisation and one hidden layer."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input(shape=(8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.Conv2D(64, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.25),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()

    train_images, test_images, train_labels, test_labels = load_data()
    keras.utils.set_random_seed(0)
    model = make_model()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    started = time.perf_counter()
    model.fit(
        train_images,
        train_labels,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=(test_images, test_labels),
        verbose=2,
    )
    seconds = time.perf_counter() - started
    _, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"test accuracy {accuracy:.4f} after {arguments.epochs} epochs in {seconds:.1f} s")


if __name__ == "__main__":
    main()
