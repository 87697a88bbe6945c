"""Gradient figures and alarms on two ranks of which one has bad data; part of ``horovod_runs``."""

from __future__ import annotations

import warnings
from typing import Any, Callable

import numpy as np

import tfvolta
from tests.processes.horovod_models import keras, session_of
from tfvolta.callbacks import session_callbacks
from tfvolta.errors import NumericsWarning


def alarms(rank: int) -> dict[str, Any]:
    """The third batch of the second rank holds an infinity; figures are those of both ranks."""
    session = session_of(
        mixed_precision={"policy": "mixed_float16", "loss_scale": {"initial": 64.0, "hysteresis": 2}},
        gradient_monitor={"every_steps": 2},
        alarms={"nan_loss": "stop"},
    )
    small = keras.initializers.Constant(0.1)
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(3, kernel_initializer=small, name="first"),
            keras.layers.Dense(1, kernel_initializer=small, use_bias=False, name="last"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.full((12, 2), 1.0 + rank, "float32")
    if rank == 1:
        x[5, 0] = np.inf
    callbacks = session_callbacks(session)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericsWarning)
        warnings.filterwarnings("ignore", message=".*shuffle=True.*")
        model.fit(x, np.zeros((12, 1), "float32"), batch_size=2, shuffle=False, verbose=0, callbacks=callbacks)
    gradients = next(each for each in callbacks if isinstance(each, tfvolta.callbacks.GradientMonitor))
    found = next(each for each in callbacks if isinstance(each, tfvolta.callbacks.Alarms))
    state = tfvolta.bridge.bridge_for(model).loss_scale(model.optimizer)
    session.undo()
    return {
        "norms": [row["groups"]["last"]["norm"] for row in gradients.rows],
        "steps": [row["step"] for row in gradients.rows],
        "batches": [record["batch"] for record in found.records],
        "what": [record["what"] for record in found.records],
        "culprits": [record["culprit"]["kind"] for record in found.records],
        "scale": [state.scale, state.overflows],
    }


CASES: dict[str, Callable[[int], Any]] = {"numerics": alarms}
