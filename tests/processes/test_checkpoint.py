"""Workers with checkpoints: one is killed, one is told to end, and the training is that of a run without either."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.horovod_place import horovod_folder
from tests.processes.launched import ROOT, Launched, launch, summary

pytestmark = pytest.mark.timeout(900)  # three starts of two workers, two models each

# The script knows nothing of tfvolta. Its first fit is not disturbed, its second one is; both are the same training.
TRAIN = """
import numpy as np
import tensorflow as tf
keras = tf.keras
x = np.random.RandomState(0).randn(32, 4).astype("float32")
action, at = [("die", 13), ("term", 18), ("none", 0)][int(os.environ["TFVOLTA_RESTART"])]

def steps(model):
    return int(model.optimizer.iterations.numpy())

class Disturb(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if index == 1 and steps(self.model) == at:
            if action == "die":
                os._exit(9)
            if action == "term":
                signal.raise_signal(signal.SIGTERM)

def trained(name, *callbacks):
    keras.utils.set_random_seed(5)
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1] * 2)).shuffle(32, seed=3).batch(4)
    history = model.fit(data, epochs=3, verbose=0, callbacks=list(callbacks))
    np.savez(f"{name}.{index}.npz", *model.get_weights())
    logs = [float(value) for value in history.history["loss"]]
    print("RESULT", json.dumps({"name": name, "steps": steps(model), "loss": logs}), flush=True)

trained("whole")
trained("disturbed", Disturb())
"""
# A callback with batch hooks would make Keras 2 refuse parameter servers.
ON_EPOCHS = """class Disturb(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
"""


def options(kind: str, **settings: Any) -> list[str]:
    """Of a launch of two workers."""
    given = {"strategy.kind": kind, "mixed_precision": "null", "checkpoint.directory": "checkpoints", **settings}
    asked = [part for key, value in given.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
    return ["--workers", "2", "--grace-seconds", "5", "--json", *asked]


@pytest.fixture(scope="module", params=("multi_worker_mirrored", "horovod"))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def done(kind: str, folder: Path) -> Launched:
    """The whole launch: the first start is killed, the second told to end, the third comes to its end."""
    environ = {"TMPDIR": str(folder / "temporary")}
    if kind == "horovod":
        environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(horovod_folder())])
    (folder / "temporary").mkdir()
    asked = [*options(kind, checkpoint__every_steps=5), "--max-restarts", "2"]
    launched = launch(folder, TRAIN, *asked, environ=environ)
    assert launched.code == 0, launched.err[-80:]
    return launched


def results(done: Launched, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line.split("RESULT ")[1]) for line in done.out if "RESULT " in line]
    return [result for result in found if result["name"] == name]


def evidence(folder: Path, done: Launched, start: int, worker: str = "") -> dict[str, Any]:
    run = folder / "runs" / summary(done)["runs"][start]
    found: dict[str, Any] = json.loads((run / worker / "evidence.json").read_text())
    return found


def test_steps_and_logs_are_those_of_a_run_that_nothing_disturbed(done: Launched) -> None:
    whole, disturbed = results(done, "whole"), results(done, "disturbed")
    # The first fit had come to its end before the first failure and is not trained again.
    assert [result["steps"] for result in whole] == [24] * 6
    assert all(result["loss"] == whole[0]["loss"] for result in whole)
    assert [result["steps"] for result in disturbed] == [24, 24]
    for result in disturbed:
        assert result["loss"] == pytest.approx(whole[0]["loss"], rel=1e-6)


def test_weights_are_those_of_a_run_that_nothing_disturbed(done: Launched, folder: Path) -> None:
    for index in (0, 1):
        with np.load(folder / f"whole.{index}.npz") as whole, np.load(folder / f"disturbed.{index}.npz") as disturbed:
            for key in whole:
                np.testing.assert_allclose(disturbed[key], whole[key], rtol=0, atol=1e-6)


def test_a_killed_worker_loses_no_step_before_the_last_checkpoint(done: Launched, folder: Path) -> None:
    assert any("worker 1 exited with code 9" in line for line in done.said)
    assert evidence(folder, done, 1)["measurements"]["checkpoint"]["resumed_at_step"] == 10


def test_told_to_end_both_workers_save_the_same_step_and_end_alike(done: Launched, folder: Path) -> None:
    assert any("exited with code 143" in line for line in done.said)
    chief = evidence(folder, done, 1)
    assert chief["status"] == "interrupted"
    assert chief["error"]["type"] == "Preempted"
    saved = Path(chief["measurements"]["checkpoint"]["directory"]) / "step-000000019"
    assert f"SIGTERM: saved step 19 (epoch 3, batch 3) in {saved}" in chief["error"]["message"]
    other = evidence(folder, done, 1, "workers/worker-1")
    assert other["status"] == "interrupted"
    assert evidence(folder, done, 2)["measurements"]["checkpoint"]["resumed_at_step"] == 19


def test_only_the_chief_leaves_files(done: Launched, folder: Path) -> None:
    fits = sorted(each.name for each in (folder / "checkpoints").iterdir())
    assert fits == ["fit-00", "fit-01"]
    for fit in fits:
        names = {each.name for each in (folder / "checkpoints" / fit).iterdir()}
        assert all(name.startswith("step-") for name in names) and len(names) == 3
    left = [each.name for each in (folder / "temporary").iterdir() if each.name.startswith("tfvolta-worker-")]
    assert left == []


def test_the_plan_and_the_evidence_say_so(done: Launched, folder: Path) -> None:
    outcome = evidence(folder, done, 2)["outcomes"]["checkpoint"]
    assert outcome["status"] == "APPLIED"
    assert "Went on from step 19 (epoch 3, batch 3)" in outcome["message"]
    assert outcome["observed"]["listens"]


def test_parameter_servers_go_on_with_the_next_epoch(tmp_path: Path) -> None:
    """The chief is killed in its second epoch; workers have been in batches that nobody can name."""
    body = TRAIN.replace("index == 1 and steps(self.model) == at", 'task["type"] == "chief" and self.epoch == 1')
    body = body.replace("on_train_batch_end(self, batch, logs=None)", "on_epoch_end(self, epoch, logs=None)")
    body = body.replace("class Disturb(keras.callbacks.Callback):", ON_EPOCHS)
    body = body.replace(".batch(4)", ".repeat().batch(4)").replace("epochs=3", "epochs=3, steps_per_epoch=8")
    asked = [*options("parameter_server"), "--ps", "1", "--max-restarts", "1"]
    done = launch(tmp_path, body.replace('("term", 18)', '("none", 0)'), *asked)
    assert done.code == 0, done.err[-60:]
    assert [result["steps"] for result in results(done, "disturbed")] == [24]
    chief = evidence(tmp_path, done, 1)
    assert chief["measurements"]["checkpoint"]["resumed_at_step"] == 8
    assert "Went on from step 8 (the start of epoch 2)" in chief["outcomes"]["checkpoint"]["message"]
