"""Training by two workers under the launcher, on the stack of this process: one dies and all resume; one hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.horovod_place import horovod_folder
from tests.processes.launched import (
    LIMIT_SECONDS,
    ROOT,
    clean_environment,
    elapsed,
    evidences,
    launch,
    summary,
)

# MultiWorkerMirroredStrategy divides the 32 examples: 4 steps an epoch.
TRAIN = """
import numpy as np
import tensorflow as tf
keras = tf.keras
x = np.random.RandomState(0).randn(32, 8).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
class Faulty(keras.callbacks.Callback):
    steps = 0
    def on_train_batch_end(self, batch, logs=None):
        Faulty.steps += 1
        if index == 1 and Faulty.steps == 6 and os.environ["TFVOLTA_RESTART"] == "0":
            if sys.argv[1] == "hang":
                block()
            os._exit(9)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
callbacks = [keras.callbacks.BackupAndRestore("backup")] if sys.argv[1] == "die" else []
model.fit(data, epochs=4, verbose=0, callbacks=[*callbacks, Faulty()])
print("ITERATIONS", int(model.optimizer.iterations.numpy()))
"""
OPTIONS = ("--workers", "2", "--set", "strategy.kind=multi_worker_mirrored", "--set", "mixed_precision=null", "--json")


def report(folder: Path, run: str) -> str:
    """What ``tfvolta report`` says of a run, in one line."""
    command = [sys.executable, "-m", "tfvolta", "report", run]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_worker_dies_and_training_goes_on_from_the_backup(tmp_path: Path) -> None:
    done = launch(tmp_path, TRAIN, *OPTIONS, "--max-restarts", "1", "--grace-seconds", "1", arguments=("die",))
    assert done.code == 0, done.err[-60:]
    assert any(line.startswith("tfvolta: worker 1 exited with code 9 (at step 6)") for line in done.said)
    # 4 epochs of 4 steps, as without a failure.
    assert sorted(line for line in done.out if "ITERATIONS" in line) == [
        "[worker 0] ITERATIONS 16",
        "[worker 1] ITERATIONS 16",
    ]
    first, second = evidences(tmp_path, done, 0), evidences(tmp_path, done, 1)
    assert set(first) == set(second) == {"worker 0", "worker 1"}
    assert {evidence["status"] for evidence in second.values()} == {"completed"}
    assert first["worker 1"]["status"] == "running" and second["worker 0"]["worker"]["restart"] == 1
    runs = summary(done)["runs"]
    assert "worker 1 exited with code 9 (at step 6)" in report(tmp_path, runs[0])
    assert "worker 1 exited with code 0 (at step 16)" in report(tmp_path, runs[1])
    assert second["worker 1"]["outcomes"]["watchdog"]["status"] == "APPLIED"
    assert sum("evidence in" in line for line in done.err) == 2, "the chief of each start, and nobody else"


def test_a_worker_that_hangs_ends_all_within_the_limit_and_is_named(tmp_path: Path) -> None:
    options = (*OPTIONS, "--set", "watchdog={stall_seconds: 4}", "--grace-seconds", "4")
    started = time.monotonic()
    done = launch(tmp_path, TRAIN, *options, arguments=("hang",))
    assert done.code == 75 and elapsed(started) < LIMIT_SECONDS
    failed = summary(done)["failed"]
    assert failed.startswith("worker 1 stands still (at step 6): worker 1 was last seen at step 6, "), failed
    assert failed.endswith("worker 0 waits in step 7")
    ended = evidences(tmp_path, done)
    assert {evidence["error"]["type"] for evidence in ended.values()} == {"StallError"}
    assert "worker 0 waits in step 7" in ended["worker 1"]["error"]["problems"][0]["why"]
    stacks = [path.read_text() for path in (tmp_path / "runs").rglob("stacks.txt")]
    assert len(stacks) == 2 and sum("in block" in text for text in stacks) == 1


RANKS = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant([1.0 + hvd.rank()]), op=hvd.Sum, name="first")
print("SUM", float(total[0]), hvd.rank(), hvd.size(), hvd.local_rank(), flush=True)
if hvd.rank() == 1:
    os._exit(9)
hvd.allreduce(tf.constant([1.0]), name="second")
"""


def test_horovods_ranks_meet_and_end_together(tmp_path: Path) -> None:
    """A script of Horovod's own; the rendezvous server comes from horovod.runner, whose parts this test guards."""
    options = ("--workers", "2", "--kind", "horovod", "--grace-seconds", "2", "--json")
    path = os.pathsep.join([str(ROOT), str(horovod_folder())])
    done = launch(tmp_path, RANKS, *options, environ={"PYTHONPATH": path})
    assert done.code == 9, done.err[-40:]
    assert sorted(line for line in done.out if "SUM" in line) == [
        "[worker 0] SUM 3.0 0 2 0",
        "[worker 1] SUM 3.0 1 2 1",
    ]
    assert summary(done)["failed"] == "worker 1 exited with code 9"


@pytest.mark.skipif(version("tensorflow").startswith("2.15"), reason="the same on each stack")
def test_a_plan_that_is_refused_is_said_once_and_starts_nothing(tmp_path: Path) -> None:
    done = launch(tmp_path, TRAIN, *OPTIONS, "--set", "communication.num_packs=2", "--max-restarts", "3")
    assert done.code == 2 and not done.pids
    assert "\n".join(done.err).count("communication.num_packs") >= 1 and not done.said[1:]
