"""Loads a saved model in plain Keras, resumes it, and prints what it found as JSON. Run as a script of its own."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import keras
import numpy as np


def main(path: str, out: str) -> None:
    """Loads ``path``, trains two epochs in the given order and saves the weights to ``out``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model: Any = keras.models.load_model(path)
    optimizer = model.optimizer
    found = {
        "class": type(optimizer).__name__,
        "module": type(optimizer).__module__.split(".")[0],
        "iterations": int(keras.ops.convert_to_numpy(optimizer.iterations)),
        "scale": float(optimizer.dynamic_scale.numpy()),
        "counter": int(optimizer.step_counter.numpy()),
        "growth_steps": optimizer.dynamic_growth_steps,
        "policies": sorted({layer.dtype_policy.name for layer in model._flatten_layers()}),
        "warnings": [str(item.message) for item in caught if "Skipping variable" in str(item.message)],
    }
    x = np.load(out + ".x.npy")
    y = np.load(out + ".y.npy")
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    np.savez(out + ".npz", *model.get_weights())
    found["iterations_after"] = int(keras.ops.convert_to_numpy(optimizer.iterations))
    found["scale_after"] = float(optimizer.dynamic_scale.numpy())
    found["tfvolta"] = "tfvolta" in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
