"""A small training that can be interrupted anywhere, and the data that it may have."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import bridge_for

EPOCHS, STEPS, BATCH = 3, 8, 4
TOTAL = EPOCHS * STEPS
X = np.random.RandomState(0).randn(STEPS * BATCH, 4).astype("float32")
Y = X[:, :1] * 2
Dataset = tf.data.Dataset


class CrashError(Exception):
    """What interrupts a training."""


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    """Raises after a batch of an epoch."""

    def __init__(self, epoch: int, batch: int):
        super().__init__()
        self.at, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise CrashError


def batches() -> Any:
    for at in range(0, len(X), BATCH):
        yield X[at : at + BATCH], Y[at : at + BATCH]


def rows() -> Any:
    return Dataset.from_tensor_slices((X, Y))


_Sequence = keras.utils.PyDataset if KERAS3 else keras.utils.Sequence


class Shuffled(_Sequence):  # type: ignore[misc,valid-type]
    """Batches in an order that this sequence draws anew after each epoch, and that Keras shuffles besides."""

    def __init__(self) -> None:
        super().__init__()
        self.order = list(range(STEPS))

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        at = self.order[index] * BATCH
        return X[at : at + BATCH], Y[at : at + BATCH]

    def on_epoch_end(self) -> None:
        random.shuffle(self.order)


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": BATCH},
    "generator": lambda: {"x": Dataset.from_generator(batches, output_signature=rows().batch(BATCH).element_spec)},
    "python generator": lambda: {"x": (each for _ in range(EPOCHS) for each in batches()), "steps_per_epoch": STEPS},
    "sequence": lambda: {"x": Shuffled()},
    "seeded": lambda: {"x": rows().shuffle(len(X), seed=3).batch(BATCH)},
    "shuffled twice": lambda: {"x": rows().shuffle(len(X), seed=3).batch(BATCH).shuffle(3, seed=4)},
    "endless": lambda: {"x": rows().shuffle(len(X), seed=3).repeat().batch(BATCH), "steps_per_epoch": STEPS},
    "parts of a pass": lambda: {"x": rows().repeat(EPOCHS).batch(BATCH), "steps_per_epoch": STEPS - 1},
}


def compiled(seed: int = 5, **arguments: Any) -> Any:
    """Weights, statistics and slots that all depend on every batch."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu"), layers.BatchNormalization(), layers.Dense(1)]
    )
    compile_model(model, **arguments)
    return model


def compile_model(model: Any, optimizer: Optional[Any] = None, **arguments: Any) -> None:
    given = {"metrics": ["mae"], "jit_compile": False, **arguments}
    model.compile(keras.optimizers.Adam(0.01) if optimizer is None else optimizer, "mse", **given)


class Unbuilt(keras.Model):  # type: ignore[misc]
    """A model without variables before its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.out = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))


def unbuilt(**arguments: Any) -> Any:
    keras.utils.set_random_seed(5)
    model = Unbuilt()
    compile_model(model, **arguments)
    return model


def fit(model: Any, data: dict[str, Any], *callbacks: Any, epochs: int = EPOCHS) -> Any:
    return model.fit(**data, epochs=epochs, verbose=0, callbacks=list(callbacks))


def state(model: Any) -> dict[str, Any]:
    """Everything that training changed, as arrays by group."""
    found = bridge_for(model).training_variables(model)
    return {group: [variable.numpy() for _, variable in held] for group, held in found.items()}


def difference(one: Any, other: Any, *groups: str) -> float:
    """The largest difference of two models' variables; a model or its state."""
    first, second = (each if isinstance(each, dict) else state(each) for each in (one, other))
    groups = groups or tuple(first)
    assert [len(first[group]) for group in groups] == [len(second[group]) for group in groups]
    pairs = [pair for group in groups for pair in zip(first[group], second[group])]
    return max(float(np.max(np.abs(np.subtract(a, b, dtype="float64")), initial=0.0)) for a, b in pairs)


def steps(model: Any) -> int:
    """Optimiser steps of a training."""
    return int(model.optimizer.iterations.numpy())


def checkpoints(folder: Path) -> list[str]:
    """Names in the folder of the first fit, sorted."""
    return sorted(each.name for each in (folder / "fit-00").iterdir())
