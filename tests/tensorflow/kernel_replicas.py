"""Trains a model with fused batch normalisation on two replicas beside the same one as Keras runs it; prints JSON.

Run as ``python -m tests.tensorflow.kernel_replicas`` in a process of its own: the CPU is split into two devices.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.kernel_records import BATCH_NORM

BRIDGE = bridge_for_stack(STACK)
X = np.random.default_rng(0).normal(1.0, 2.0, (32, 6, 6, 3)).astype("float32")
Y = X[:, 0, 0, :1]


def trained(strategy: Any, fused: bool) -> dict[str, Any]:
    layers = keras.layers
    with strategy.scope():
        keras.utils.set_random_seed(1)
        parts = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Flatten(), layers.BatchNormalization()]
        model = keras.Sequential([keras.Input((6, 6, 3)), *parts, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
    if fused:
        BRIDGE.install_kernel(model, BATCH_NORM)
    losses = model.fit(X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0).history["loss"]
    copies = [strategy.experimental_local_results(weight.value) for weight in model.weights]
    return {
        "losses": losses,
        "weights": [weight.ravel().tolist() for weight in model.get_weights()],
        "spread": max(float(np.max(np.abs(each[0].numpy() - other.numpy()))) for each in copies for other in each),
        "fused": BRIDGE.train_graph(model).count("FusedBatchNormV3") // BRIDGE.train_graph(model).traces,
    }


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    print("RESULT " + json.dumps([trained(strategy, fused) for fused in (False, True)]))


if __name__ == "__main__":
    main()
