"""One script, trained by one command: alone, by two workers, by two ranks, by parameter servers; and after a kill."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Mapping

import numpy as np
import pytest

from tests.horovod_place import horovod_folder
from tests.processes.launched import launch
from tests.processes.script_run import ROOT, run_script

pytestmark = pytest.mark.timeout(600)  # nine processes with TensorFlow, one group after another

SCRIPT = """
import json, os, signal, sys
import numpy as np
import tensorflow as tf

keras = tf.keras
seeds = np.random.RandomState(7)
x = seeds.randn(192, 8).astype("float32")
y = np.tanh(x @ seeds.randn(8, 1)).astype("float32")
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1, name="head")]
)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)


class Killed(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        Killed.steps += 1
        task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})
        if Killed.steps == 9 and task.get("index") == 1 and os.environ.get("TFVOLTA_RESTART") == "0":
            os.kill(os.getpid(), signal.SIGKILL)


history = model.fit(data, epochs=4, verbose=0, callbacks=[Killed()] if "kill" in sys.argv else [])
weights = np.concatenate([np.ravel(weight) for weight in model.get_weights()])
print("RESULT", json.dumps({"loss": history.history["loss"], "weights": weights.tolist(),
                            "iterations": int(model.optimizer.iterations.numpy())}), flush=True)
"""
PRECISE = ("--set", "mixed_precision.policy=float32")
TENSORFLOW_ALIKE = {"CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}


def results(lines: list[str]) -> list[dict[str, Any]]:
    """What the workers of a launch printed."""
    return [json.loads(line.split("RESULT ", 1)[1]) for line in lines if "RESULT " in line]


def assert_same(result: Mapping[str, Any], alone: Mapping[str, Any]) -> None:
    """The same loss curve and weights, step for step."""
    np.testing.assert_allclose(result["loss"], alone["loss"], rtol=1e-5)
    np.testing.assert_allclose(result["weights"], alone["weights"], rtol=1e-5, atol=1e-6)
    assert result["iterations"] == alone["iterations"] == 24


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The script trained as one process."""
    folder = tmp_path_factory.mktemp("alone")
    done = run_script(folder, SCRIPT, *PRECISE, environ=TENSORFLOW_ALIKE)
    assert done.code == 0, done.err[-3000:]
    (result,) = results(done.out.splitlines())
    return result


def test_two_workers(alone: dict[str, Any], tmp_path: Path) -> None:
    done = launch(
        tmp_path,
        SCRIPT,
        *("--workers", "2", "--set", "strategy.kind=multi_worker_mirrored", *PRECISE),
        environ=TENSORFLOW_ALIKE,
    )
    assert done.code == 0, done.err[-60:]
    found = results(done.out)
    assert len(found) == 2 and found[0]["weights"] == found[1]["weights"]
    assert_same(found[0], alone)


def test_two_ranks(alone: dict[str, Any], tmp_path: Path) -> None:
    done = launch(
        tmp_path,
        SCRIPT,
        *("--workers", "2", "--set", "strategy.kind=horovod", "--set", "data.sharding=data", *PRECISE),
        environ={**TENSORFLOW_ALIKE, "PYTHONPATH": os.pathsep.join([str(ROOT), str(horovod_folder())])},
    )
    assert done.code == 0, done.err[-60:]
    found = results(done.out)
    assert len(found) == 2 and found[0]["weights"] == found[1]["weights"]
    assert_same(found[0], alone)
    (evidence,) = (tmp_path / "runs").glob("*/evidence.json")
    outcomes = json.loads(evidence.read_text())["outcomes"]
    assert outcomes["sharding"]["status"] == "APPLIED" and "1/2 of every batch" in outcomes["sharding"]["message"]
    assert outcomes["strategy"]["observed"]["global_batch"] == 32
    assert outcomes["strategy"]["observed"]["per_rank_batch"] == 16


def test_a_coordinator_with_one_worker(alone: dict[str, Any], tmp_path: Path) -> None:
    done = launch(
        tmp_path,
        SCRIPT,
        *("--workers", "1", "--ps", "1", "--set", "strategy.kind=parameter_server", *PRECISE),
        environ=TENSORFLOW_ALIKE,
    )
    assert done.code == 0, done.err[-60:]
    (found,) = results(done.out)
    assert_same(found, alone)


def test_a_killed_worker_is_recovered(alone: dict[str, Any], tmp_path: Path) -> None:
    done = launch(
        tmp_path,
        SCRIPT,
        *("--workers", "2", "--max-restarts", "1", "--grace-seconds", "1"),
        *("--set", "strategy.kind=multi_worker_mirrored", "--set", "checkpoint.every_steps=4", *PRECISE),
        arguments=("kill",),
        environ=TENSORFLOW_ALIKE,
    )
    assert done.code == 0, done.err[-60:]
    assert any(re.search(r"worker 1 was ended by SIGKILL \(at step 9\)", line) for line in done.err), done.err[-30:]
    for found in results(done.out):  # the history of the second start begins where the checkpoint was
        np.testing.assert_allclose(found["weights"], alone["weights"], rtol=1e-5, atol=1e-6)
        assert found["loss"][-1] == pytest.approx(alone["loss"][-1], rel=1e-5)
        assert found["iterations"] == 24
