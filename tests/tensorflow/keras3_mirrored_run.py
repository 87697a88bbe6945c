"""Trains under MirroredStrategy on two logical CPUs with one replica's gradients not finite; prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import keras  # noqa: E402

from tfvolta.bridge import bridge_for_stack  # noqa: E402
from tfvolta.bridge.base import LossScaleSettings  # noqa: E402


class Retrofits(keras.callbacks.Callback):  # type: ignore[misc]
    """What a mixed-precision callback does."""

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        bridge = bridge_for_stack("keras3")
        bridge.retrofit(model, "mixed_float16")
        bridge.install_loss_scale(model, LossScaleSettings())


def train(bad_replica: int, corrected: bool) -> dict[str, Any]:
    """Four steps of 32 examples a replica; the second is infinite on one replica (-1: on none)."""
    x = np.random.RandomState(0).randn(256, 8).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    if bad_replica >= 0:
        x[64 + 32 * bad_replica : 96 + 32 * bad_replica] = np.inf
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(2)])
        optimizer: Any = keras.optimizers.SGD(0.1, momentum=0.9)
        if not corrected:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callbacks = [Retrofits()] if corrected else []
    model.fit(x, y, batch_size=64, shuffle=False, verbose=0, callbacks=callbacks)
    bridge = bridge_for_stack("keras3")
    counts, graph = bridge.step_counts(model), bridge.train_graph(model)
    state = bridge.loss_scale(model.optimizer)
    return {
        "finite": bool(all(np.isfinite(np.asarray(weight)).all() for weight in model.get_weights())),
        "scale": state.scale,
        "good_steps": state.good_steps,
        "applied": counts.applied,
        "skipped": counts.skipped,
        "examples": bridge.examples_seen(model),
        "float16": graph.count("MatMul", "float16"),
        "collectives": sum(graph.collectives.values()),
        "jit": [bridge.jit(model).effective, bridge.jit(model).reason],
        "obstacles": bridge.xla_obstacles(model),
        "weights": [np.asarray(weight).tolist() for weight in model.get_weights()],
    }


if __name__ == "__main__":
    print(json.dumps(train(int(sys.argv[1]), sys.argv[2] == "corrected")))
