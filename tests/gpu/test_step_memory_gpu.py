"""The peak of a running step as it is foretold, against the one that a GPU's allocator counts; skips without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_settings_on_gpu import _gpus

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(_gpus() == 0, reason="needs an NVIDIA GPU: nvidia-smi lists none")

TRAIN = """
import json, sys
import numpy as np
import tensorflow as tf
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.callbacks.step_memory import StepMemory
keras = tf.keras
model = keras.Sequential([keras.Input((2048,)), *[keras.layers.Dense(2048, activation="relu") for _ in range(8)]])
model.compile("adam", "mse", jit_compile=sys.argv[1] == "on")
batch = np.zeros((16384, 2048), "float32")
memory = DeviceMemory()
step = StepMemory(memory)
data = tf.data.Dataset.from_tensors((batch, batch)).repeat(5)
model.fit(data, verbose=0, callbacks=[memory, step])
print(json.dumps({**step.summary(), "reason": step.reason}))
"""


def trained(jit: str) -> dict[str, Any]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, jit], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("jit", ["on", "off"])
def test_the_peak_is_foretold(jit: str) -> None:
    found = trained(jit)
    (figures,) = found["figures"]
    assert "predicted_peak_bytes" in figures, found
    assert abs(figures["error_percent"]) < 10.0, found["peak"]
    assert figures["first_step_peak_bytes"] >= 0.5 * figures["steady_peak_bytes"]
    assert figures["look_seconds"] < 10.0


def test_the_pool_says_how_broken_up_it_is() -> None:
    found = trained("on")
    (figures,) = found["figures"]
    pool = figures["pools"]["GPU:0"]
    assert 0.0 <= pool["share"] <= 1.0 and 0 < pool["in_use_bytes"] <= pool["peak_bytes"] <= pool["limit_bytes"]
    assert "largest block" in found["fragmentation"]
