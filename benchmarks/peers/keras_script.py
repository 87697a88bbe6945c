#!/usr/bin/env python3
"""One of the models in an ordinary Keras script: float32, compile() and fit() with what most people write.

    python3 benchmarks/peers/keras_script.py resnet50              # alone: prints the epochs
    TF_USE_LEGACY_KERAS=1 python3 benchmarks/peers/keras_script.py lstm --tiny

The batch lies in host memory and comes again and again through tf.data.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import pathlib
import sys
from typing import Any, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.baton import Baton

BATON = Baton.from_environment()  # before the long imports: a process whose driver is gone ends at once

import tensorflow as tf  # noqa: E402

from benchmarks.epoch_clock import make_clock, make_turn_clock  # noqa: E402
from benchmarks.peers import keras_models  # noqa: E402
from benchmarks.peers.initial_values import initial_values  # noqa: E402
from benchmarks.peers.workloads import Workload, host, parse_arguments  # noqa: E402

keras = tf.keras
ENDLESS = 100_000  # epochs, of which a driver takes as many as it has turns


def make_model(workload: Workload, stride_first: bool) -> Any:
    """A model that gives logits."""
    if workload.model == "resnet50":
        return keras_models.resnet(
            keras, workload.size, workload.classes, workload.width, workload.depth, stride_first=stride_first
        )
    if workload.model == "bert_large":
        sizes = (workload.depth[0], workload.width, workload.heads, workload.size)
        return keras_models.encoder(keras, sizes, workload.words, workload.classes)
    return keras_models.sequences(
        keras, (workload.depth[0], workload.width, workload.size), workload.words, workload.classes
    )


def facts(model: Any) -> dict[str, Any]:
    """What holds for the whole measurement, and what the model really runs with."""
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
    optimizer = model.optimizer
    return {
        "parameters": sum(math.prod(weight.shape) for weight in model.trainable_weights),
        "device": details.get("device_name", "CPU"),
        "versions": {
            "tensorflow": tf.__version__,
            "keras": importlib.metadata.version("tf_keras" if legacy else "keras"),
            "cudnn": tf.sysconfig.get_build_info().get("cudnn_version"),
        },
        "compute_dtype": model.layers[2].compute_dtype,
        "jit_compile": getattr(model, "jit_compile", getattr(model, "_jit_compile", None)),
        "optimizer": [type(optimizer).__name__, type(getattr(optimizer, "inner_optimizer", optimizer)).__name__],
        **host(),
    }


def peak_gib() -> Optional[float]:
    """Peak of the first GPU's memory."""
    if not tf.config.list_physical_devices("GPU"):
        return None
    return round(tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30, 2)


def main() -> None:
    arguments, workload = parse_arguments()
    keras.utils.set_random_seed(0)
    model = make_model(workload, arguments.stride_first)
    for name, values in initial_values(workload):
        model.get_layer(name).set_weights(values)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if workload.model == "resnet50":
        model.compile(keras.optimizers.SGD(workload.learning_rate, momentum=0.9), loss)
    else:
        model.compile(keras.optimizers.Adam(workload.learning_rate), loss)
    dataset = tf.data.Dataset.from_tensors(workload.data()).repeat().prefetch(2)
    row = {"examples": workload.batch * workload.steps, "steps": workload.steps}
    clock = make_clock(keras) if BATON is None else make_turn_clock(keras, BATON, row, facts, peak_gib)
    epochs = arguments.epochs if BATON is None else ENDLESS
    history = model.fit(dataset, steps_per_epoch=workload.steps, epochs=epochs, verbose=0, callbacks=[clock])
    if BATON is None:
        print({"seconds": clock.seconds, "loss": history.history["loss"], **facts(model)})


main()
