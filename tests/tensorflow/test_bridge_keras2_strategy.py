"""The Keras 2 bridge under a strategy with two replicas; in a process of its own, for its logical devices."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.stack import KERAS3, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run() -> dict[str, Any]:
    """Trains under MirroredStrategy on two logical CPUs, functional, subclassed and unbuilt."""
    import numpy as np

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    from tests.tensorflow import bridge_keras2_models as models
    from tfvolta.bridge.base import LossScaleSettings

    bridge = models.bridge()
    found: dict[str, Any] = {}
    builders = {**models.IMAGE_MODELS, "unbuilt": models.Subclassed}
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])  # one: two of them share collective keys
    for kind in ("functional", "subclassed", "unbuilt"):
        with strategy.scope():
            model = models.compiled(builders[kind])

        def apply(model: Any) -> None:
            result = bridge.retrofit(model, "mixed_float16")
            bridge.install_loss_scale(model, LossScaleSettings())
            found.setdefault("refused", []).extend(item.name for item in result.refused)

        losses = models.train(model, callbacks=[models.Arrange(apply)])
        summary = bridge.train_graph(model)
        found[kind] = {
            "falls": losses[1] < losses[0],
            "float16": models.computing(summary, "float16"),
            "output": model(models.IMAGES[:2]).dtype.name,
            "head": [layer.compute_dtype for layer in model.layers if layer.weights][-1],
            "collectives": sum(summary.collectives.values()),
            "examples": bridge.examples_seen(model),
        }
        if kind == "functional":
            x = models.IMAGES.copy()
            x[20:28] = np.inf  # the second half of the second batch: an overflow on the second replica only
            model.fit(x, models.LABELS, batch_size=16, shuffle=False, verbose=0)
            counts = bridge.step_counts(model)
            found["counts"] = [counts.attempted, counts.applied, counts.skipped]
            found["finite"] = all(bool(np.isfinite(variable.numpy()).all()) for variable in model.trainable_variables)
            found["counter"] = type(model.optimizer.__dict__["tfvolta_applied"]).__name__
    return found


def test_two_replicas() -> None:
    code = (
        "import json; from tests.tensorflow.test_bridge_keras2_strategy import run; print('RESULT' + json.dumps(run()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stderr[-3000:]
    found = json.loads(lines[-1][len("RESULT") :])
    assert found["refused"] == []
    for kind in ("functional", "subclassed", "unbuilt"):
        assert found[kind]["falls"], kind
        assert found[kind]["float16"] > 0
        assert found[kind]["output"] == found[kind]["head"] == "float32"
        assert found[kind]["collectives"] > 0
        assert found[kind]["examples"] == 64
    assert found["counts"] == [12, 11, 1]
    assert found["finite"]
    assert found["counter"] == "MirroredVariable"
