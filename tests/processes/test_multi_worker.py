"""Two workers of MultiWorkerMirroredStrategy on loopback train as one process does, on every stack."""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any, Mapping

import numpy as np
import pytest

from tests.processes.cluster_processes import ROOT, ClusterProcesses
from tests.stack import KERAS3, STACK

pytestmark = pytest.mark.timeout(1200)  # two workers and one process beside them, with some dozen models each
LIMIT = 1000.0
CASES = (
    "sgd",
    "adam",
    "mixed",
    "scaled and clipped",
    "overflow on worker 1",
    "batch norm",
    "embedding",
    "several steps a call",
    "subclassed",
    "packs",
    *(("eager",) if KERAS3 else ()),
)
# Adam magnifies rounding; with float16 the order of additions shows in the third digit.
LOOSER = {"adam": 1e-4, "mixed": 2e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def runs(folder: pathlib.Path) -> Mapping[str, Any]:
    """What the two workers and the process beside them printed."""
    command = ["-m", "tests.processes.multi_worker_runs", str(folder)]
    cluster = ClusterProcesses({"worker": 2}, folder)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    try:
        cluster.start([*command, "workers"])
        alone = subprocess.run(
            [sys.executable, *command, "alone"], capture_output=True, text=True, cwd=folder, env=environ, timeout=LIMIT
        )
        printed = {name: list(cluster.lines(name, LIMIT)) for name in cluster.processes}
        codes = cluster.codes(60)
    finally:
        cluster.close()
    assert alone.returncode == 0, alone.stderr[-4000:]
    assert set(codes.values()) == {0}, {name: cluster.errors(name)[-3000:] for name in codes}
    printed["alone"] = alone.stdout.splitlines()
    results = [json.loads(line[7:]) for lines in printed.values() for line in lines if line.startswith("RESULT ")]
    return {found["role"]: found for found in results}


def weights(folder: pathlib.Path, name: str, role: str) -> list[Any]:
    with np.load(folder / f"{name}.{role}.npz") as stored:
        return [stored[key] for key in sorted(stored, key=lambda key: int(key.removeprefix("arr_")))]


def test_all_replicas_are_there(runs: Mapping[str, Any]) -> None:
    assert {role: found["replicas"] for role, found in runs.items()} == {"worker0": 2, "worker1": 2, "alone": 1}
    assert runs["worker0"]["same object"] and runs["worker1"]["same object"]


@pytest.mark.parametrize("name", (*CASES, "arrays"))
def test_weights_are_those_of_one_process(runs: Mapping[str, Any], folder: pathlib.Path, name: str) -> None:
    assert runs
    first, second, alone = (weights(folder, name, role) for role in ("worker0", "worker1", "alone"))
    assert [array.shape for array in first] == [array.shape for array in alone]
    for one, other, expected in zip(first, second, alone):
        assert np.array_equal(one, other)  # although every worker made its model with another seed
        limit = LOOSER.get(name, 1e-5) * max(float(np.max(np.abs(expected))), 0.01)
        assert float(np.max(np.abs(one - expected))) <= limit


@pytest.mark.parametrize("name", CASES)
def test_logs_and_counts_are_those_of_one_process(runs: Mapping[str, Any], name: str) -> None:
    first, second, alone = (runs[role][name] for role in ("worker0", "worker1", "alone"))
    for key, expected in alone.items():
        if isinstance(expected, float) and not math.isfinite(expected):
            assert not math.isfinite(first[key]) and not math.isfinite(second[key])
            continue
        assert first[key] == second[key], key
        if expected is None:  # no loss scale
            assert first[key] is None
        else:
            assert first[key] == pytest.approx(expected, rel=2e-2 if name == "mixed" else 1e-3), key


def test_an_overflow_on_one_worker_skips_the_step_on_both(runs: Mapping[str, Any]) -> None:
    for role in ("worker0", "worker1"):
        found = runs[role]["overflow on worker 1"]
        assert (found["applied"], found["skipped"], found["scale"]) == (19, 1, 512.0)


def test_arrays_validation_and_callbacks_that_read_logs(runs: Mapping[str, Any]) -> None:
    first, second, alone = (runs[role]["arrays"] for role in ("worker0", "worker1", "alone"))
    assert first == second
    rates = "learning_rate" if "learning_rate" in alone else "lr"
    assert alone[rates] == pytest.approx([0.05, 0.05, 0.025])
    for key in ("loss", "mae", "val_loss", "val_mae", rates, "predicted"):
        assert first[key] == pytest.approx(alone[key], rel=1e-3, abs=1e-5), key


def test_only_the_chief_writes_the_files_that_were_asked_for(runs: Mapping[str, Any], folder: pathlib.Path) -> None:
    chief, other = runs["worker0"]["files"], runs["worker1"]["files"]
    name = "best.keras" if KERAS3 else "best.h5"
    assert chief["after the last epoch"][name] and chief["loaded"]
    if not KERAS3:
        return  # Keras 2 redirects by itself
    assert chief["after the last epoch"]["log.csv"] and chief["own paths"] == [
        str(folder / name),
        str(folder / "log.csv"),
    ]
    assert not any(path.startswith(str(folder)) for path in other["own paths"])
    assert not any(pathlib.Path(path).parent.exists() for path in other["own paths"])  # gone with their process
    assert len((folder / "log.csv").read_text().splitlines()) == 3
    assert not (folder / "backup").exists()  # the chief's, which ends with training


@pytest.mark.parametrize("role", ("worker0", "worker1"))
def test_settings_are_applied_and_seen(runs: Mapping[str, Any], role: str) -> None:
    outcomes = runs[role]["files"]["outcomes"]
    for name in ("cluster", "preflight", "strategy", "communication", "first_all_reduce"):
        assert outcomes[name]["status"] == "APPLIED", outcomes[name]
    assert outcomes["strategy"]["observed"]["replicas"] == 2 and outcomes["strategy"]["observed"]["workers"] == 2
    assert "The global batch of 16 gives each replica 8 examples." in outcomes["strategy"]["message"]
    seen = outcomes["communication"]["observed"]
    assert seen["timeouts"] == [300.0] and set(seen["hints"]) == {"CollectiveReduceV2[ring]"}
    assert seen["pack_bytes"] == 2**20 and seen["packs"] == sum(seen["counted"].values()) == 1
    assert outcomes["jit"]["observed"]["compiled"] is False


@pytest.mark.parametrize("name", ("window", "scaled window", "half", "half window"))
def test_windows_and_float16_gradients_between_workers(
    runs: Mapping[str, Any], folder: pathlib.Path, name: str
) -> None:
    first, second, alone = (weights(folder, name, role) for role in ("worker0", "worker1", "alone"))
    for one, other, expected in zip(first, second, alone):
        assert np.array_equal(one, other)
        assert float(np.max(np.abs(one - expected))) < (2e-3 if "half" in name else 1e-6)
    for role in ("worker0", "worker1"):
        found = runs[role]["reduction"][name]
        operations, taken_in, _ = found["graphs"]["update"]
        dtype, size = ("float16", 98) if "half" in name else ("float32", 196)
        assert operations == {f"CollectiveReduceV2[{dtype}]": 1} and taken_in == size
        if "window" in name:
            assert (found["batches"], found["updates"], found["applied"], found["skipped"]) == (12, 4, 4, 0)
            assert found["graphs"]["accumulate"][:2] == [{}, 0]


def test_an_overflow_on_one_worker_leaves_out_the_window_on_both(runs: Mapping[str, Any]) -> None:
    for role in ("worker0", "worker1"):  # weight, loss scale, updates applied and skipped
        assert runs[role]["reduction"]["overflow"] == [-1.0, 512.0, 1, 1]


OWN_STRATEGY = """
import numpy as np
import tensorflow as tf
keras = tf.keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((np.ones((16, 2), "f"), np.zeros((16, 1), "f"))).batch(4)
history = model.fit(data, epochs=2, verbose=0)
print("RESULT", strategy.num_replicas_in_sync, int(model.optimizer.iterations.numpy()), history.history["loss"][-1])
"""
NO_STRATEGY = """
import numpy as np
import tensorflow as tf
keras = tf.keras
data = tf.data.Dataset.from_tensor_slices((np.ones((16, 2), "f"), np.zeros((16, 1), "f"))).batch(4)
assert tf.config.list_logical_devices("CPU")
keras.utils.set_random_seed(1)  # some weights make a first gradient overflow at the default loss scale
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(data, epochs=2, verbose=0)
replicas = model.distribute_strategy.num_replicas_in_sync
print("RESULT", replicas, int(model.optimizer.iterations.numpy()), history.history["loss"][-1])
"""


def with_a_callback(body: str) -> str:
    """A script of its own strategy that gives ``fit`` one callback of tfvolta's, and is run by Python."""
    given = body.replace("verbose=0", "verbose=0, callbacks=[XlaJit(False)]")
    return given.replace("import numpy as np", "import numpy as np\nfrom tfvolta.callbacks import XlaJit")


UNDER_TFVOLTA = ["-m", "tfvolta", "run", "--directory", "runs"]
SCRIPTS: Mapping[str, tuple[str, list[str]]] = {
    "own strategy": (OWN_STRATEGY, UNDER_TFVOLTA),  # with which plain Keras 3 cannot train
    "no strategy": (NO_STRATEGY, [*UNDER_TFVOLTA, "--set", "strategy.kind=multi_worker_mirrored"]),
    "a callback": (with_a_callback(OWN_STRATEGY), []),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_trains_with_two_workers(tmp_path: pathlib.Path, script: str) -> None:
    body, command = SCRIPTS[script]
    body = body.replace("keras = tf.keras", "import tf_keras as keras") if STACK == "tf_keras" else body
    (tmp_path / "train.py").write_text(body)
    cluster = ClusterProcesses({"worker": 2}, tmp_path)
    try:
        cluster.start([*command, "train.py"])
        printed = {name: list(cluster.lines(name, 240)) for name in cluster.processes}
        codes = cluster.codes(30)
    finally:
        cluster.close()
    assert set(codes.values()) == {0}, {name: cluster.errors(name)[-3000:] for name in codes}
    results = [line for lines in printed.values() for line in lines if line.startswith("RESULT ")]
    assert len(results) == 2 and results[0] == results[1] and results[0].startswith("RESULT 2 8 ")


LATE = """
import sys
import tensorflow as tf
import tfvolta
from tfvolta.errors import LateError
tf.constant(1)
kind, folder = {"kind": "multi_worker_mirrored"}, sys.argv[1]
config = tfvolta.load_config(strategy=kind, cluster={"preflight": False}, run={"directory": folder})
try:
    tfvolta.build_strategy(config)
except LateError as error:
    assert "before the first tensor" in str(error) and "configured at program startup" in str(error), error
    print("LATE")
"""


def test_a_strategy_after_the_first_tensor_is_too_late(tmp_path: pathlib.Path) -> None:
    """It says so at once, and waits for no other worker."""
    cluster = ClusterProcesses({"worker": 2}, tmp_path)
    try:
        cluster.start(["-c", LATE, str(tmp_path / "runs")], ["worker 0"])
        assert list(cluster.lines("worker 0", 120)) == ["LATE"], cluster.errors("worker 0")[-2000:]
    finally:
        cluster.close()
