"""Loss scale, gradient figures and alarms with two replicas on logical CPUs; prints what happened as one JSON document.

Run as ``python -m tests.tensorflow.numerics_replicas [--without-merge-calls]``: a process splits its CPU only once.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

import tfvolta
from tests.stack import STACK, keras, tf
from tests.tensorflow import scale_models as models
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.scale_bounds import ScaleBounds
from tfvolta.errors import NumericsWarning

BRIDGE = bridge_for_stack(STACK)
BOUNDS = ScaleBounds(floor=4.0, ceiling=64.0, hysteresis=2)
STEPS = [False, True, False, False, *[True] * 9, *[False] * 6, True, False, True]  # an infinity on one replica only


def scale(strategy: Any, per_call: int, every: int = 1, **compiled: Any) -> dict[str, Any]:
    """What the scale is after steps of which some overflow on the second replica."""
    with strategy.scope():
        model = models.model(steps_per_execution=per_call, **compiled)
        BRIDGE.install_loss_scale(model, LossScaleSettings(32.0, 3, None, BOUNDS))
    BRIDGE.mend(model)
    if every > 1:
        BRIDGE.set_reduction(model, every=every)
    models.fit(model, [step for step in STEPS for _ in range(every)])
    state, row = BRIDGE.loss_scale(model.optimizer), BRIDGE.skipped_row(model.optimizer)
    expected = models.Expected(32.0, 3, BOUNDS).steps(STEPS)
    counts = BRIDGE.step_counts(model)
    return {
        "seen": [state.scale, state.good_steps, state.overflows, row.longest],
        "expected": [expected.scale, expected.good, expected.overflows, expected.longest],
        "counts": [counts.applied, counts.skipped, STEPS.count(True), STEPS.count(False)],
    }


def gradients(strategy: Any, every: int = 1, **compiled: Any) -> list[Any]:
    """Norms of a gradient that each replica has another share of: rows 2 and 4, so a mean of 3."""
    with strategy.scope():
        made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, name="only")])
        made.compile(keras.optimizers.SGD(0.0, clipnorm=0.1), lambda _, y: tf.reduce_sum(y, axis=-1), **compiled)
        BRIDGE.install_loss_scale(made, LossScaleSettings(fixed=1024.0))
    BRIDGE.mend(made)
    if every > 1:
        BRIDGE.set_reduction(made, every=every)
    monitor = tfvolta.callbacks.GradientMonitor(every_steps=2)
    x = np.tile([[2.0], [4.0]], (6, 1)).astype("float32")
    made.fit(x, np.zeros_like(x), batch_size=2, shuffle=False, verbose=0, callbacks=[monitor])
    return [[row["step"], row["all"]["norm"], row["loss_scale"], row["all"]["elements"]] for row in monitor.rows]


def alarm(strategy: Any) -> dict[str, Any]:
    """A layer of one's own that overflows for the rows of the second replica."""
    policy = keras.config.set_dtype_policy if STACK == "keras3" else keras.mixed_precision.set_global_policy
    policy("mixed_float16")
    with strategy.scope():
        made = keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(0.1), name="first"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Lambda(lambda x: tf.where(x > 0.5, x * 1e5, x), name="middle"),
                keras.layers.Dense(1, dtype="float32", name="last"),
            ]
        )
        made.compile(keras.optimizers.SGD(0.001), "mse")
    policy("float32")
    x = np.ones((24, 2), "float32")
    x[18:20, 0] = np.arange(2) * 50  # of the second replica in the third batch
    alarms = tfvolta.callbacks.Alarms()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericsWarning)
        warnings.filterwarnings("ignore", message=".*shuffle=True.*")
        made.fit(x, np.zeros((24, 1), "float32"), batch_size=8, shuffle=False, verbose=0, callbacks=[alarms])
    record = alarms.records[0] if alarms.records else {"batch": -1, "culprit": {}, "weights": ""}
    return {"batch": record["batch"], "culprit": record["culprit"], "weights": record["weights"]}


def main() -> dict[str, Any]:
    """Everything."""
    config = tfvolta.load_config(strategy={"kind": "mirrored", "logical_cpus": 2, "devices": "all"})
    strategy = tfvolta.build_strategy(config)
    without = "--without-merge-calls" in sys.argv
    if without:  # as on GPUs in a step that XLA compiles
        strategy.extended._use_merge_call = lambda: False
    found = {
        "scale": [scale(strategy, 1), scale(strategy, 1, every=2)],
        "gradients": gradients(strategy),
        "windows": gradients(strategy, every=2),
    }
    if not without:
        found["scale"].append(scale(strategy, 4))
        found["alarm"] = alarm(strategy)
    return found


if __name__ == "__main__":
    print("RESULT " + json.dumps(main()), flush=True)
