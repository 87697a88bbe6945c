"""Run as a program, in plain Keras 2 without tfvolta: loads what a retrofitted model saved, and trains on.

Takes the folder as its argument and writes ``resumed.json`` into it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable

import h5py
import numpy as np
import tensorflow as tf

if tf.__version__.startswith("2.15"):
    import keras
else:
    import tf_keras as keras

FOLDER = sys.argv[1] if __name__ == "__main__" else ""
L = keras.layers


def build(legacy: bool = False, policy: str = "mixed_float16") -> Any:
    """The model, built and compiled under a policy."""
    keras.mixed_precision.set_global_policy(policy)
    inputs = keras.Input((8, 8, 3), name="inputs")
    x = L.BatchNormalization(name="norm")(L.Conv2D(4, 3, name="conv")(inputs))
    x = L.Dense(8, name="hidden", activation="relu")(L.Flatten(name="flat")(x))
    model = keras.Model(inputs, L.Dense(4, activation="softmax", name="head", dtype="float32")(x))
    optimizer = keras.optimizers.legacy.Adam(1e-2) if legacy else keras.optimizers.Adam(1e-2)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    keras.mixed_precision.set_global_policy("float32")
    return model


def train(model: Any, first: int, last: int, callbacks: Any = ()) -> None:
    """Epochs in a fixed order of data."""
    random = np.random.RandomState(0)
    x, y = random.rand(64, 8, 8, 3).astype("float32"), random.randint(0, 4, 64)
    settings = {"batch_size": 16, "verbose": 0, "shuffle": False, "callbacks": list(callbacks)}
    model.fit(x, y, initial_epoch=first, epochs=last, **settings)


def state(model: Any) -> dict[str, Any]:
    """What a resumed run needs."""
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # A checkpoint's values for slots wait until the slots are created.
    (inner.build if hasattr(inner, "build") else inner._create_all_weights)(model.trainable_variables)
    held = inner.variables() if callable(inner.variables) else inner.variables
    return {
        "optimizer": type(optimizer).__name__,
        "iterations": int(optimizer.iterations),
        "slots": sorted(round(float(np.abs(variable.numpy()).sum()), 4) for variable in held),
        "scale": float(getattr(optimizer, "loss_scale", 0.0)),
        "good_steps": int(getattr(optimizer, "dynamic_counter", 0)),
        "policies": [layer.dtype_policy.name for layer in model.layers if layer.weights],
    }


def load_hdf5(path: str) -> Any:
    """A new-style optimiser's state from HDF5, as plain Keras can do it."""
    model = keras.models.load_model(path)
    inner = model.optimizer.inner_optimizer
    inner.build(model.trainable_variables)
    with h5py.File(path) as file:
        group = file["optimizer_weights"]
        inner.set_weights([group[name][()] for name in group.attrs["weight_names"]])
    return model


def load_saved_model(path: str) -> Any:
    """The optimiser's state from a SavedModel."""
    model = keras.models.load_model(path)
    model.load_weights(path + "/variables/variables")
    return model


def load_weights(path: str, legacy: bool = False) -> Any:
    """Weights and optimiser into a model of the same shape."""
    model = build(legacy)
    model.load_weights(path)
    return model


def load_checkpoint(path: str) -> Any:
    """A checkpoint of the model and, separately named, its optimiser."""
    model = build()
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path)
    return model


def load_new_weights(path: str) -> Any:
    """The newer HDF5 weights file, into an optimiser that is built."""
    model = build()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return model


def load_into_float32(path: str) -> Any:
    """Weights and optimiser into the script's own float32 model, without loss scaling."""
    model = build(policy="float32")
    model.load_weights(path)
    return model


LOADERS: dict[str, Callable[[str], Any]] = {
    "after.keras": keras.models.load_model,
    "during-02.keras": keras.models.load_model,
    "after.h5": load_hdf5,
    "during-02.h5": load_hdf5,
    "after.saved_model": load_saved_model,
    "during.saved_model": load_saved_model,
    "after.weights": load_weights,
    "during.weights": load_weights,
    "after.checkpoint-1": load_checkpoint,
    "after.weights.h5": load_new_weights,
    "float32:after.weights": load_into_float32,
    "legacy.h5": keras.models.load_model,
    "legacy.weights": lambda path: load_weights(path, legacy=True),
    "legacy.saved_model": load_saved_model,
    "plain:after.h5": keras.models.load_model,
}


def main() -> None:
    """Loads and resumes each."""
    results: dict[str, Any] = {}
    for name, load in LOADERS.items():
        model = load(os.path.join(FOLDER, name.split(":")[-1]))
        results[name] = state(model)
        train(model, 2, 4)
        np.savez(os.path.join(FOLDER, name.replace(":", "_") + ".npz"), *model.get_weights())
    model = build()
    train(model, 0, 4, [keras.callbacks.BackupAndRestore(os.path.join(FOLDER, "backup"))])
    results["backup"] = state(model)
    np.savez(os.path.join(FOLDER, "backup.npz"), *model.get_weights())
    results["tfvolta"] = "tfvolta" in sys.modules
    with open(os.path.join(FOLDER, "resumed.json"), "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
