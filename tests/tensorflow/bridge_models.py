"""Small image classifiers of every kind, for all bridges."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stack import keras

layers = keras.layers


def data(count: int = 64) -> tuple[Any, Any]:
    """Small images whose class is the brightest channel of three."""
    x = np.random.RandomState(0).randn(count, 8, 8, 3).astype("float32")
    return x, x.mean((1, 2)).argmax(-1).astype("int32")


def functional() -> Any:
    inputs = keras.Input((8, 8, 3))
    x = layers.BatchNormalization()(layers.Conv2D(8, 3)(inputs))
    x = layers.Dense(8)(layers.Flatten()(layers.ReLU()(x)))
    return keras.Model(inputs, layers.Dense(3, activation="softmax", name="out")(x))


def sequential() -> Any:
    body = [layers.SeparableConv2D(8, 3), layers.Conv2D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(8)]
    return keras.Sequential([keras.Input((8, 8, 3)), *body, layers.Dense(3, activation="softmax", name="out")])


def nested() -> Any:
    inputs = keras.Input((8, 8, 3))
    backbone = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.ReLU()], name="backbone")
    features = keras.Input((288,))
    outputs = layers.Dense(3, activation="softmax", name="out")(layers.Dense(8)(features))
    head = keras.Model(features, outputs, name="head")
    return keras.Model(inputs, head(layers.Flatten()(backbone(inputs))))


class Subclassed(keras.Model):
    """Layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.body = [layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU(), layers.Flatten(), layers.Dense(8)]
        self.out = layers.Dense(3, activation="softmax", name="out")

    def call(self, inputs: Any, training: bool = False) -> Any:
        x = inputs
        for layer in self.body:
            x = layer(x)
        return self.out(x)


def subclassed() -> Any:
    model = Subclassed()
    model(np.zeros((2, 8, 8, 3), "float32"))
    return model


KINDS = {"functional": functional, "sequential": sequential, "nested": nested, "subclassed": subclassed}
