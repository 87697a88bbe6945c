"""Settings that no fit was given are named when the process ends, on standard error and in the evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import numpy as np
import tensorflow as tf
import tfvolta
keras = tf.keras
x = np.ones((8, 8), "float32")
{before}
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="hidden"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
{after}
model.fit(x, x[:, :1], verbose=0, callbacks={callbacks})
print("COMPUTED", model.layers[0].compute_dtype)
"""
ASK = """
config = tfvolta.load_config(run={"directory": "runs"}, mixed_precision={"policy": "mixed_float16"})
tfvolta.build_strategy(config)
"""


@pytest.mark.parametrize(
    ("when", "callbacks", "dtype", "told"),
    [
        ("after", "None", "float32", True),  # the silent no-op: a policy behind the model's back
        ("before", "None", "float16", True),  # the layers compute in float16, and nothing scales the loss
        ("after", "tfvolta.build_callbacks(config, model)", "float16", False),
    ],
)
def test_a_config_whose_callbacks_no_fit_was_given(
    tmp_path: Path, when: str, callbacks: str, dtype: str, told: bool
) -> None:
    places = {"before": "", "after": "", when: ASK}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(callbacks=callbacks, **places)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"COMPUTED {dtype}" in done.stdout
    assert ("these settings did not bind: retrofit" in done.stderr) is told
    (file,) = (tmp_path / "runs").glob("*/evidence.json")
    evidence = json.loads(file.read_text())
    assert evidence["outcomes"]["retrofit"]["status"] == ("PENDING" if told else "APPLIED")
