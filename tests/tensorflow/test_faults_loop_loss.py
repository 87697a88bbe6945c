"""The loss of a custom training loop under a strategy: right with one replica and with two, on every Keras.

Known from tensorflow/tensorflow#35333, #33809 and #25806: Keras 2 refuses the reduction that its losses have from the
start, and elsewhere gradients are too large or too small by the number of replicas.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.stack import KERAS3

pytestmark = pytest.mark.timeout(400)

ROOT = pathlib.Path(__file__).parents[2]
ONE_STEP = (
    "keras",
    "function",
    "scalar function",
    "given size",
    "uneven",
    "uneven scalar",
    "one row",
    "loss scale",
)
REDUCTIONS = [
    f"{name} {weighted}"
    for name in ("default", "sum", "none", "weights")[: 4 if KERAS3 else 3]
    for weighted in ("plain", "weighted")
]


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    """What a process with two logical CPUs came to."""
    command = [sys.executable, "-m", "tests.tensorflow.distributed_loops"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=380, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    return found


@pytest.mark.parametrize("replicas", ("default", "1", "2"))
@pytest.mark.parametrize("loss", ONE_STEP)
def test_one_step_comes_to_two(loops: dict[str, Any], replicas: str, loss: str) -> None:
    weight, said = loops["one step"][replicas][loss]
    assert weight == pytest.approx(2.0, abs=1e-6)
    assert said["loss"] == pytest.approx(1.0, abs=1e-6)


def test_batch_sizes_are_reported(loops: dict[str, Any]) -> None:
    one, two = (loops["one step"][name]["keras"][1] for name in ("1", "2"))
    assert (one["replicas"], one["replica_batches"], one["global_batch"]) == (1, [4], 4)
    assert (two["replicas"], two["replica_batches"], two["global_batch"]) == (2, [2, 2], 4)
    assert "each replica 2 examples" in two["batches"]
    uneven = loops["one step"]["2"]["uneven"][1]
    assert (uneven["replica_batches"], uneven["global_batch"]) == ([2, 1], 3)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_uneven_shares_train_like_one_replica(loops: dict[str, Any], name: str) -> None:
    one, two = (loops["masked"][replicas][name] for replicas in ("1", "2"))
    assert two["weights"] == pytest.approx(one["weights"], abs=1e-5)
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)


@pytest.mark.parametrize("name", ("default plain", "default weighted"))
def test_the_loop_trains_like_fit(loops: dict[str, Any], name: str) -> None:
    assert loops["masked"]["2"][name]["weights"] == pytest.approx(loops["keras"][name], abs=1e-5)


def test_what_cannot_be_a_share_is_refused(loops: dict[str, Any]) -> None:
    assert "strategy.run" in loops["refusals"]["outside"]
    assert "MeanSquaredError()" in loops["refusals"]["name"]
    assert "positive integer" in loops["refusals"]["size"]
