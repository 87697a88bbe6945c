"""Parameter servers as real processes on loopback: what is trained, what is lost, and how every process ends."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.processes.cluster_processes import ClusterProcesses
from tests.stack import KERAS3, STACK

pytestmark = pytest.mark.timeout(600)  # five processes start TensorFlow at once

LIMIT_SECONDS = 500.0
MODULE = "tests.processes.parameter_server_runs"
TABLE_BYTES = 40000 * 8 * 4

TRAIN = """
import os, sys
import numpy as np
import tensorflow as tf
keras = tf.keras
first = tf.constant(1.0)  # starts TensorFlow before any layer is made
assert '"chief"' in os.environ["TF_CONFIG"].split('"task"')[1], "only the chief runs a script"
model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
x = np.random.RandomState(0).randn(320, 4).astype("float32")
model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(16), epochs=2, verbose=0)
print("TRAINED", flush=True)
model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(16), epochs=100000, verbose=0)
"""

SERVE = """
import sys
from tfvolta.cluster import resolve
from tfvolta.strategy.parameter_server import serve
import os
serve(resolve(os.environ), float(sys.argv[1]))
"""


def run(mode: str, folder: Path) -> dict[str, Any]:
    """What the chief saw, and how the processes ended."""
    cluster = ClusterProcesses({"chief": 1, "worker": 2, "ps": 2}, folder)
    result: dict[str, Any] = {}
    try:
        cluster.start(["-m", MODULE, mode])
        for line in cluster.lines("chief 0", LIMIT_SECONDS):
            if line.startswith("KILL "):
                cluster.kill(line[len("KILL ") :])
            if line.startswith("RESULT "):
                result = json.loads(line[len("RESULT ") :])
        assert result, cluster.errors("chief 0")[-5000:]
        return {**result, "codes": cluster.codes(60.0)}
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run("together", tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run("lost", tmp_path_factory.mktemp("lost"))


# -- two workers


def test_every_process_ends_with_the_chief(together: dict[str, Any]) -> None:
    assert together["stack"] == STACK
    assert together["codes"] == dict.fromkeys(("chief 0", "worker 0", "worker 1", "ps 0", "ps 1"), 0)


def test_two_workers_converge(together: dict[str, Any]) -> None:
    losses = together["two workers"]["loss"]
    assert len(losses) == 6
    assert losses[-1] < 0.5 * losses[0]


def test_no_step_and_no_example_is_lost_between_two_workers(together: dict[str, Any]) -> None:
    run = together["two workers"]
    assert run["iterations"] == run["batches"] == 6 * 20
    if KERAS3:
        assert run["examples"] == 320  # those of the evaluation after it, each seen once
        assert run["keys"] == ["loss", "mae"]


def test_evaluation_and_prediction_are_those_of_one_process(together: dict[str, Any]) -> None:
    served, local = together["two workers"]["evaluate"]
    assert set(served) == set(local) == {"loss", "mae"}
    for name in served:
        assert served[name] == pytest.approx(local[name], rel=1e-5)
    assert together["two workers"]["predict"] < 1e-6


def test_variables_are_on_the_servers_and_the_large_one_is_split(together: dict[str, Any]) -> None:
    for outcome in (together["two workers"]["outcome"], together["two workers"]["session"]["strategy"]):
        assert outcome["status"] == "APPLIED", outcome
        observed = outcome["observed"]
        assert set(observed["bytes_per_server"]) == {"ps 0", "ps 1"}
        assert sum(observed["bytes_per_server"].values()) > 2 * TABLE_BYTES  # the table and its momentum
        assert max(observed["bytes_per_server"].values()) < 1.01 * min(observed["bytes_per_server"].values())
        assert list(observed["sharded"]) == ["table/embeddings"]
        shards = observed["sharded"]["table/embeddings"]
        assert sorted(shard["server"] for shard in shards) == ["ps 0", "ps 1"]
        assert [shard["bytes"] for shard in shards] == [TABLE_BYTES // 2] * 2


def test_every_setting_ended(together: dict[str, Any]) -> None:
    outcomes = together["two workers"]["session"]
    assert outcomes["cluster"]["status"] == "APPLIED"
    assert outcomes["cluster"]["observed"]["workers"] == 2
    assert outcomes["communication"]["status"] == "NOT_APPLICABLE"


def test_only_the_rows_asked_for_travel(together: dict[str, Any]) -> None:
    assert together["two workers"]["gathers"] == 2  # one look-up on each server, and no read of the table


def test_a_saved_model_has_its_shards_in_one_piece(together: dict[str, Any]) -> None:
    saved = together["two workers"]["saved"]
    assert saved["difference"] == 0.0
    assert saved["iterations"] == 120
    loaded, served = saved["slots"]
    assert served > 0.1 and loaded == pytest.approx(served, rel=1e-5)


def test_arrays_are_trained_on_in_whole_epochs(together: dict[str, Any]) -> None:
    assert together["data"]["arrays"] == {"keys": ["loss", "mae", "val_loss", "val_mae"], "steps": 40}
    assert together["data"]["validation"] < 1e-5
    served, local = together["data"]["few"]
    assert served == pytest.approx(local, rel=1e-5)
    assert together["data"]["endless"] == "accepted"


def test_data_that_cannot_travel(together: dict[str, Any]) -> None:
    data = together["data"]
    if KERAS3:  # the chief reads them, and each batch travels with its step
        assert (data["generator"], data["generator steps"], data["unknown"]) == ("accepted", 5, "accepted")
        return
    assert "Python function" in data["generator"] and "TFRecordDataset" in data["generator"]
    assert "steps_per_epoch" in data["unknown"]


def test_what_would_train_wrongly_is_refused(together: dict[str, Any]) -> None:
    refusals = together["refusals"]
    assert "processes of its own" in refusals["twice"]
    if not KERAS3:
        assert "Loss scaling is not supported" in refusals["loss scale"]  # Keras's own refusal
        return
    assert "clipnorm=1.0 with table/embeddings" in refusals["clipnorm"]
    assert "Adafactor" in refusals["adafactor"]
    assert "run_eagerly" in refusals["eager"]
    assert "another number" in refusals["loss scale"]
    assert "jit_compile=True" in refusals["jit"]


# -- a worker is killed, and then the other one


def test_training_goes_on_without_a_lost_worker(lost: dict[str, Any]) -> None:
    assert lost["lost"] == ["worker 1"]
    assert lost["batches"] == 60
    # A step that was running on the lost worker is done again by the other one, at most once each.
    assert 60 <= lost["iterations"] <= 62
    assert lost["loss"][-1] < lost["loss"][0]


@pytest.mark.parametrize("name", ("sgd", "momentum", "adam", "steps_per_execution"))
def test_one_worker_trains_as_one_process_does(lost: dict[str, Any], name: str) -> None:
    assert lost["exact"][name]["difference"] <= 1e-5
    served, local = lost["exact"][name]["losses"]
    assert served == pytest.approx(local, rel=1e-5)


def test_without_any_worker_training_ends_with_an_error(lost: dict[str, Any]) -> None:
    assert "No worker is left" in lost["nobody"]
    assert lost["seconds"] < 60
    assert lost["codes"] == {"chief 0": 0, "worker 0": -9, "worker 1": -9, "ps 0": 0, "ps 1": 0}


# -- a script that knows nothing of it, and a parameter server that is killed


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    cluster = ClusterProcesses({"chief": 1, "worker": 1, "ps": 1}, folder)
    command = ["-m", "tfvolta", "run", "--directory", "runs", "--set", "strategy.kind=parameter_server"]
    try:
        cluster.start([*command, "--set", "mixed_precision=null", "--set", "xla=null", "train.py"])
        for line in cluster.lines("chief 0", LIMIT_SECONDS):
            if line == "TRAINED":
                cluster.kill("ps 0")
        codes = cluster.codes(60.0)
        errors = {name: cluster.errors(name) for name in cluster.processes}
    finally:
        cluster.close()
    evidence = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("runs/**/evidence*.json")]
    return {"codes": codes, "errors": errors, "evidence": evidence}


def test_a_lost_parameter_server_ends_all_with_its_name(script: dict[str, Any]) -> None:
    assert script["codes"] == {"chief 0": 75, "worker 0": 75, "ps 0": -9}, script["errors"]
    assert re.search(r"Parameter server 0 was lost.*ps 0 at 127\.0\.0\.1:", script["errors"]["chief 0"], re.DOTALL)
    assert "The chief is gone" in script["errors"]["worker 0"]


def test_the_script_runs_in_the_chief_alone(script: dict[str, Any]) -> None:
    assert "only the chief runs a script" not in script["errors"]["worker 0"]
    (evidence,) = (each for each in script["evidence"] if each["worker"]["name"] == "chief 0")
    assert evidence["outcomes"]["strategy"]["status"] == "APPLIED", evidence["outcomes"]["strategy"]
    assert evidence["measurements"]["throughput"]["examples_per_second"] > 0
    assert evidence["error"]["type"] == "LostError"


# -- processes that serve, without any chief


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A server whose chief dies, and one whose chief never comes."""
    folder = tmp_path_factory.mktemp("servers")
    (folder / "serve.py").write_text(SERVE, encoding="utf-8")
    died = ClusterProcesses({"chief": 1, "worker": 1, "ps": 1}, folder)
    absent = ClusterProcesses({"chief": 1, "worker": 1, "ps": 1}, folder)
    try:
        host, port = died.addresses["chief"][0].split(":")
        with socket.create_server((host, int(port))) as chief:
            chief.settimeout(200)
            died.start(["serve.py", "200"], ["ps 0"])
            absent.start(["serve.py", "0.5"], ["worker 0"])
            connection, _ = chief.accept()
        connection.close()  # as the kernel closes it when the chief's process is gone
        yield {
            "codes": {**died.codes(60.0), **absent.codes(200.0)},
            "ps 0": died.errors("ps 0"),
            "worker 0": absent.errors("worker 0"),
        }
    finally:
        died.close()
        absent.close()


def test_a_server_ends_when_the_chief_dies(servers: dict[str, Any]) -> None:
    assert servers["codes"]["ps 0"] == 1  # an error that nobody caught
    assert "LostError: The chief is gone" in servers["ps 0"]
    assert "broke without a word" in servers["ps 0"]


def test_a_server_ends_when_no_chief_comes(servers: dict[str, Any]) -> None:
    assert servers["codes"]["worker 0"] == 1
    assert "ClusterError: The chief never came" in servers["worker 0"]
    assert "within 0.5 seconds" in servers["worker 0"]
