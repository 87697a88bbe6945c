"""Processes of their own for activations that are computed again: two replicas, and XLA's buffers of a deep model.

``python -m tests.tensorflow.recompute_runs replicas`` or ``memory again 24``; XLA writes its
buffers where XLA_FLAGS says.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.recompute_models import FEATURES, LABELS, again, distance, outcome, residual

layers = keras.layers


def replicas() -> dict[str, Any]:
    """Two replicas on two logical CPUs, plain and computed again."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    steps = {}
    callback = again(every=1)
    for name, callbacks in (("plain", []), ("again", [callback])):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            # Keras 2 numbers its random operations as it traces, and two replicas trace side by side.
            model = residual(0.3 if KERAS3 else 0.0)
            model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        before = [np.array(weight) for weight in model.get_weights()]
        model.fit(FEATURES, LABELS, 8, 2, verbose=0, shuffle=False, callbacks=callbacks)
        steps[name] = [after - former for former, after in zip(before, model.get_weights())]
    found = outcome(callback)
    return {
        "status": found.status.value,
        "message": found.message,
        "segments": len(found.observed["segments"]),
        "left_out": found.observed["left_out"],
        "distance": distance(steps["plain"], steps["again"]),
    }


def transformer(blocks: int) -> Any:
    """An encoder of so many blocks."""
    inputs = keras.Input((32, 16))
    tensor = inputs
    for _ in range(blocks):
        attended = layers.MultiHeadAttention(2, 8, dropout=0.1)(query=tensor, value=tensor, key=tensor)
        tensor = layers.LayerNormalization()(layers.Add()([tensor, attended]))
        hidden = layers.Dropout(0.1)(layers.Dense(16)(layers.Dense(64, activation="gelu")(tensor)))
        tensor = layers.LayerNormalization()(layers.Add()([tensor, hidden]))
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(tensor)))


def memory(way: str, blocks: int) -> dict[str, Any]:
    """One step of the transformer, compiled by XLA."""
    data = np.random.RandomState(0).rand(64, 32, 16).astype("float32")
    model = transformer(blocks)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=True)
    callbacks = [again(every=4)] if way == "again" else []
    model.fit(data, data[:, 0, :1], 64, 1, verbose=0, callbacks=callbacks)
    return {"message": outcome(callbacks[0]).message} if callbacks else {}


if __name__ == "__main__":
    result = replicas() if sys.argv[1] == "replicas" else memory(sys.argv[2], int(sys.argv[3]))
    print("RESULT " + json.dumps({"stack": STACK, **result}))
