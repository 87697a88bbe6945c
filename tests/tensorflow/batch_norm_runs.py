"""Batch normalisation over two replicas on logical CPU devices, one JSON document.

Run as ``python -m tests.tensorflow.batch_norm_runs``: a process can split its CPU only once.
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import numpy as np

from tests.stack import keras, tf
from tfvolta.callbacks import LossScaleMonitor, MixedPrecision, Throughput
from tfvolta.strategy.batch_norm import audit_batch_norm, synchronize_batch_norm

HALVES = np.repeat([0.0, 10.0], 4)[:, None].astype("float32")  # one replica sees zeros, the other one tens


class Own(keras.layers.BatchNormalization):  # type: ignore[misc]
    """A subclass, as normalisation libraries have them."""


@functools.cache  # collectives of a second strategy would meet those of the first
def strategy() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def model_of(norm: Any, width: int = 1) -> Any:
    model = keras.Sequential([keras.Input((width,)), norm])
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    return model


def fit(model: Any, x: Any = HALVES, callbacks: Any = ()) -> None:
    batches = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(len(x))
    model.fit(batches, verbose=0, callbacks=list(callbacks))


def moving(norm: Any) -> list[float]:
    return [float(np.ravel(value.numpy())[0]) for value in (norm.moving_mean, norm.moving_variance)]


def converted(kind: Any, x: Any = HALVES) -> dict[str, Any]:
    """A layer that trained plainly before, and is converted then."""
    with strategy().scope():
        norm = kind(momentum=0.0, name="norm")
        model = model_of(norm)
    fit(model, x)
    norm.set_weights([np.full((1,), value, "float32") for value in (2.0, 3.0, 1.0, 4.0)])
    audited = audit_batch_norm(model, 2)
    changed = synchronize_batch_norm(model)
    kept = [float(value[0]) for value in norm.get_weights()]
    fit(model, x)
    after = audit_batch_norm(model, 2)
    return {"audited": audited, "changed": changed, "kept": kept, "moving": moving(norm), "after": after}


def mixed() -> dict[str, Any]:
    """Under a retrofit, with a loss scale and the monitors."""
    with strategy().scope():
        norm = keras.layers.BatchNormalization(momentum=0.0)
        model = keras.Sequential([keras.Input((1,)), norm, keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    synchronize_batch_norm(model)
    callbacks = [MixedPrecision(), Throughput(), LossScaleMonitor()]
    fit(model, callbacks=callbacks)
    counts = {"steps": callbacks[1].summary()["steps"], "attempted": callbacks[2].summary()["attempted"]}
    return {"moving": moving(norm), **counts}


def warned() -> list[str]:
    """What a callback says of a model that was left as it is."""
    with strategy().scope():
        model = model_of(keras.layers.BatchNormalization(momentum=0.0, name="norm"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, callbacks=[MixedPrecision("float32")])
    return [str(warning.message) for warning in caught if "norm" in str(warning.message)]


def made_synchronized() -> dict[str, Any]:
    with strategy().scope():
        norm = keras.layers.BatchNormalization(momentum=0.0, synchronized=True)
        model = model_of(norm)
    fit(model)
    return {"audited": audit_batch_norm(model, 2), "changed": synchronize_batch_norm(model), "moving": moving(norm)}


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    unequal = np.concatenate([np.zeros((4, 1)), np.full((2, 1), 9.0)]).astype("float32")  # 0 0 0 and 0 9 9
    results = {
        "plain": converted(keras.layers.BatchNormalization),
        "subclass": converted(Own),
        "unequal": converted(keras.layers.BatchNormalization, unequal),
        "mixed": mixed(),
        "warned": warned(),
        "made": made_synchronized(),
    }
    print("RESULTS", json.dumps(results))


if __name__ == "__main__":
    main()
