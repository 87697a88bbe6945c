"""``horovodrun -np 2 python -m tfvolta run``: a script in which tfvolta does not occur, and starts that are refused."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any, Mapping, Optional

import pytest

from tests.horovod_place import horovod_folder
from tests.processes.horovod_start import ROOT, commands_with, horovodrun

pytestmark = pytest.mark.timeout(400)  # two ranks with TensorFlow's start

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
keras = tf.keras
keras.utils.set_random_seed(hvd.rank())
x = np.random.RandomState(0).randn(64, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)
mine = slice(32 * hvd.rank(), 32 * hvd.rank() + 32)
layers = [keras.layers.Dense(512, activation="tanh") for _ in range(2)]
model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.001), "mse", jit_compile=False)
callbacks = [keras.callbacks.ModelCheckpoint("model.keras")]
if "keras2" in sys.argv:  # under tf_keras Horovod's own callback looks for Keras 3's backend
    from horovod.tensorflow.keras.callbacks import MetricAverageCallback

    callbacks.append(MetricAverageCallback())
history = model.fit(x[mine], y[mine], batch_size=4, epochs=2, verbose=2, callbacks=callbacks)
print(f"RANK {hvd.rank()} LOSS {history.history['loss'][-1]:.9f}", flush=True)
"""
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
CONFIG = {
    "strategy": {"kind": "horovod"},
    "communication": {"pack_mb": 1, "cycle_time_ms": 3.0, "compression": "fp16"},
    "horovod": {"timeline": "timeline.json"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two ranks printed, wrote and left as evidence, by rank."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    (folder / "config.yaml").write_text(json.dumps(CONFIG))
    arguments = ["-m", "tfvolta", "run", "--config", "config.yaml", "--directory", "runs", "train.py"]
    arguments += [] if importlib.metadata.version("keras").startswith("3.") and not LEGACY else ["keras2"]
    done = horovodrun(horovod_folder(), arguments, cwd=folder, seconds=360.0)
    assert done.returncode == 0, done.stdout[-5000:]
    assert commands_with(str(folder)) == []
    found = [json.loads(path.read_text()) for path in (folder / "runs").rglob("evidence.json")]
    ranks = {each["outcomes"]["strategy"]["observed"]["rank"]: each for each in found}
    assert sorted(ranks) == [0, 1]
    return {"output": done.stdout, "files": sorted(path.name for path in folder.iterdir()), **ranks}


def ended(run: dict[str, Any], rank: int, knob: str) -> dict[str, Any]:
    outcome: dict[str, Any] = run[rank]["outcomes"][knob]
    return outcome


def test_both_ranks_train_one_model(run: dict[str, Any]) -> None:
    losses = sorted(line.split("LOSS ")[1] for line in run["output"].splitlines() if "LOSS" in line)
    assert len(losses) == 2 and losses[0] == losses[1]
    for rank in range(2):
        assert ended(run, rank, "horovod_optimizer")["observed"]["operations"] == {"HorovodAllreduce[float16]": 6}
        assert ended(run, rank, "communication")["status"] == "APPLIED"
        assert run[rank]["measurements"]["rank_check"] == {"equal_weights": 6, "epochs": 2}
        # Weights, moments, step count and learning rate.
        assert run[rank]["measurements"]["broadcast"]["variables"] >= 3 * 6 + 1


def test_the_batch_of_a_rank_and_the_global_batch_are_told_apart(run: dict[str, Any]) -> None:
    assert "The batch of 4 is this rank's; the global batch is 8." in ended(run, 0, "strategy")["message"]


def test_packs_and_cycles_are_seen_in_the_timeline(run: dict[str, Any]) -> None:
    assert ended(run, 0, "horovod_timeline")["status"] == "APPLIED"
    assert ended(run, 1, "horovod_timeline")["status"] == "NOT_APPLICABLE"
    fusion = ended(run, 0, "horovod_fusion")
    assert fusion["status"] == "APPLIED", fusion
    # float16: the kernel between the hidden layers is 0.5 MiB, and some of the small ones join one another.
    assert fusion["observed"]["of_several_tensors"] >= 1 and fusion["observed"]["largest_bytes"] <= 2**20
    assert ended(run, 1, "horovod_fusion")["status"] == "UNVERIFIABLE"
    cycle = ended(run, 0, "horovod_cycle")
    assert cycle["status"] == "APPLIED" and cycle["observed"]["shortest_tenth_ms"] >= 2.7, cycle


def test_one_rank_speaks_and_writes(run: dict[str, Any]) -> None:
    lines = run["output"].splitlines()
    assert [line for line in lines if "loss:" in line and line.startswith("[0]")]
    assert [line for line in lines if "loss:" in line and line.startswith("[1]")] == []
    assert "model.keras" in run["files"] and "timeline.json" in run["files"]
    assert any("on rank 0 only, and not on rank 1: ModelCheckpoint" in line for line in lines)
    assert run[1]["measurements"]["first_rank_output"] == {"rank": 1, "left_out": ["ModelCheckpoint"]}


def plan(tmp_path: pathlib.Path, path: str, environ: Optional[Mapping[str, str]] = None) -> str:
    """What ``tfvolta plan`` says of a config with Horovod; it must be refused."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"strategy": {"kind": "horovod"}}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "OMPI_"))}
    environment.update({"PYTHONPATH": os.pathsep.join([path, str(ROOT)]), **(environ or {})})
    command = [sys.executable, "-m", "tfvolta", "plan", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


RANK = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}


def test_without_horovod_a_plan_is_refused_with_the_command(tmp_path: pathlib.Path) -> None:
    said = plan(tmp_path, "", RANK)
    for word in ("it is not installed", "TensorFlow 2.15 with Keras 2", "--no-build-isolation", "horovod==0.28.1"):
        assert word in said


def test_a_horovod_of_another_tensorflow_is_refused_before_it_is_imported(tmp_path: pathlib.Path) -> None:
    mine = horovod_folder()
    other = tmp_path / "site" / "horovod"
    other.mkdir(parents=True)
    for name in ("__init__.py", "tensorflow"):
        (other / name).symlink_to(mine / "horovod" / name)
    (other / "metadata.json").write_text(json.dumps({"tensorflow": "2.9.1"}))
    said = plan(tmp_path, str(tmp_path / "site"), RANK)
    assert "compiled against TensorFlow 2.9.1" in said and "whose library has other symbols" in said


def test_one_process_alone_is_refused_with_the_commands_that_start_two(tmp_path: pathlib.Path) -> None:
    said = plan(tmp_path, str(horovod_folder()))
    assert "one process: nothing in the environment names others" in said
    assert "horovodrun -np 2 python SCRIPT" in said and "tfvolta launch --workers 2 SCRIPT" in said


ALONE = """
import tfvolta
import tfvolta.callbacks
assert tfvolta.callbacks.RankCheck and tfvolta.callbacks.Horovod
try:
    tfvolta.callbacks.Horovod()
except tfvolta.errors.PlanError as error:
    print(error)
"""


def test_the_callback_says_the_same_and_importing_it_needs_no_horovod(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, **RANK, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it is not installed" in done.stdout and "tensorflow" not in done.stderr.lower()
