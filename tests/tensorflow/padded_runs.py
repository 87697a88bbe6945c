"""Two replicas on logical CPUs with a filled last batch, and with the smaller one; prints how far apart they are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.stack import keras, tf
from tfvolta.data import padded_batches


def trained(strategy: Any, pad: bool, steps: int) -> tuple[dict[str, list[float]], list[Any]]:
    """History and weights; 22 rows in batches of 8 leave 6, which two replicas share evenly."""
    random = np.random.default_rng(0)
    x, y, weight = (random.random(shape).astype("float32") for shape in ((22, 3), (22, 1), (22,)))
    keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile(
            keras.optimizers.SGD(0.3),
            "mse",
            metrics=["mae"],
            weighted_metrics=["mse"],
            steps_per_execution=steps,
            jit_compile=False,
        )
    dataset = tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(8)
    history = model.fit(padded_batches(dataset, model) if pad else dataset, epochs=2, verbose=0).history
    return history, model.get_weights()


def main() -> None:
    """Prints the largest differences of logs and weights by case."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    (logs, held), (filled_logs, filled) = trained(strategy, False, 1), trained(strategy, True, 1)
    found = {name: float(np.max(np.abs(np.subtract(logs[name], filled_logs[name])))) for name in logs}
    found["weights"] = max(float(np.max(np.abs(a - b))) for a, b in zip(held, filled))
    print("RESULT", json.dumps(found))


if __name__ == "__main__":
    main()
