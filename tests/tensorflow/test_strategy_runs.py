"""Strategies on logical CPU devices: equal to one device, and packed as asked, seen in the traced graph."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.stack import KERAS3, STACK
from tests.tensorflow.strategy_runs import GRADIENTS

pytestmark = pytest.mark.timeout(600)  # two processes, each with TensorFlow's start and two dozen traces

ROOT = pathlib.Path(__file__).parents[2]
ADDITIONS = {
    2: 1,
    4: 3,
}  # AddN of one pack: the two sums of hierarchical copy, where its groups need any, and their sum


@pytest.fixture(scope="module", params=(2, 4))
def runs(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a process with so many logical CPUs saw."""
    command = [sys.executable, "-m", "tests.tensorflow.strategy_runs", str(request.param)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=560, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    return {"count": request.param, **json.loads(lines[-1][len("RESULT ") :])}


def only_two(runs: dict[str, Any]) -> None:
    """Some things are looked at with two devices only, to save time."""
    if runs["count"] != 2:
        pytest.skip("looked at with two devices")


def communication(run: dict[str, Any]) -> dict[str, Any]:
    outcome: dict[str, Any] = run["outcomes"]["communication"]
    return outcome


def test_every_all_reduce_trains_like_one_device(runs: dict[str, Any]) -> None:
    assert runs["stack"] == STACK
    assert set(runs["equal"]) >= {"auto", "reduction_to_one_device", "hierarchical_copy 4"}
    for name, run in runs["equal"].items():
        assert run["replicas"] == runs["count"], name
        assert abs(run["loss"] - runs["single"]["loss"]) < 1e-6, name
        assert run["difference"] < 1e-6, name


def test_the_strategy_is_seen_where_variables_live(runs: dict[str, Any]) -> None:
    names = [f"CPU:{i}" for i in range(runs["count"])]
    for run in runs["equal"].values():
        outcome = run["outcomes"]["strategy"]
        assert outcome["status"] == "APPLIED"
        assert outcome["observed"]["variable_devices"] == names
        assert outcome["observed"]["per_replica_batch"] == [16 // runs["count"]] * 2
        assert f"each replica {16 // runs['count']} examples" in outcome["message"]


@pytest.mark.parametrize("packs", (0, 1, 2, 4))
def test_the_graph_has_the_packs_asked_for(runs: dict[str, Any], packs: int) -> None:
    run, none = runs["equal"][f"hierarchical_copy {packs}"], runs["equal"]["auto"]
    expected = ADDITIONS[runs["count"]] * (packs or GRADIENTS)
    # Counted over the whole graph, less what the metrics add; the default reduces gradients without AddN.
    assert run["add_n"] - none["add_n"] == expected
    outcome = communication(run)
    assert outcome["status"] == "APPLIED"
    assert outcome["observed"]["packs"] == (packs or GRADIENTS)
    assert outcome["observed"]["counted"]["AddN"] == expected
    assert outcome["observed"]["gradients"] == GRADIENTS
    assert run["collectives"] == 0


def test_no_number_is_one_pack(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["equal"]["hierarchical_copy"]["add_n"] == runs["equal"]["hierarchical_copy 1"]["add_n"]
    assert communication(runs["equal"]["hierarchical_copy"])["observed"]["packs"] == 1


def test_reduction_to_one_device_adds_each_gradient(runs: dict[str, Any]) -> None:
    run = runs["equal"]["reduction_to_one_device"]
    assert run["add_n"] - runs["equal"]["auto"]["add_n"] == GRADIENTS
    assert communication(run)["status"] == "APPLIED"


def test_the_default_is_one_collective_a_replica(runs: dict[str, Any]) -> None:
    run = runs["equal"]["auto"]
    assert run["collectives"] == runs["count"]
    assert set(run["hints"]) == {"CollectiveReduceV2[ring]"}  # on CPU devices; NCCL on GPUs
    assert communication(run)["status"] == "APPLIED"
    assert "ring" in communication(run)["message"]


def test_the_same_configuration_is_the_same_strategy(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["same object"] == {"same": True, "finite": True}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("other collectives", ("a process of its own", "shape mismatch", "after mirrored over CPU:0")),
        ("nccl", ("hierarchical_copy", "NcclAllReduce for GPUs only")),
        ("missing device", ("set strategy.logical_cpus:", "one of CPU:0")),
        ("gpu", ("this machine has no GPU", "received: GPU:0")),
        ("three", ("even number of replicas", "left out")),
        ("kind", ("default (", "one_device (", "mirrored (", "received: central_storage")),
    ],
)
def test_what_cannot_work_is_refused_when_built(runs: dict[str, Any], case: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in runs["refusals"][case]


def test_batch_norm_is_audited_and_converted(runs: dict[str, Any]) -> None:
    only_two(runs)
    found = runs["batch norm"]
    assert [name.split("/")[-1] for name in found["names"]] == ["norm_0", "norm_1"]
    assert "not synchronized" in found["note"] and "norm_0" in found["note"] and "4 examples" in found["note"]
    assert found["one replica"] == []
    assert found["plain"] == ([0.0, 0.0] if KERAS3 else [5.0, 0.0])  # half the replicas see 0, the other half 10
    assert found["after"] == []
    assert found["stats"][0] == pytest.approx([5.0, 25.0], abs=1e-4)
    assert found["stats"][1] == pytest.approx([0.0, 1.0], abs=1e-3)  # what the first one puts out
    assert found["stats"][2] == [0.0, 1.0]  # frozen


def test_tensorflow_still_loses_a_gradient_with_odd_hierarchies(runs: dict[str, Any]) -> None:
    if runs["count"] != 4:
        pytest.skip("needs three devices")
    assert runs["odd hierarchy"] > 1e-3  # the reason for refusing it; when this fails, the rule can go


def test_one_replica_reduces_nothing(runs: dict[str, Any]) -> None:
    only_two(runs)
    run = runs["one replica"]
    assert communication(run)["status"] == "NO_EFFECT"
    assert "num_packs changes nothing" in communication(run)["message"]
    assert run["outcomes"]["strategy"]["observed"]["variable_devices"] == ["CPU:1"]
    assert run["default"] is True  # a single default device needs no MirroredStrategy


def test_one_device_is_where_it_was_asked_for(runs: dict[str, Any]) -> None:
    only_two(runs)
    outcome = runs["one device"]["outcomes"]["strategy"]
    assert outcome["status"] == "APPLIED"
    assert outcome["observed"]["variable_devices"] == ["CPU:1"]
    assert abs(runs["one device"]["loss"] - runs["single"]["loss"]) < 1e-6


@pytest.mark.parametrize("name", ("custom step", "embedding", "steps_per_execution", "loss scale"))
def test_packs_are_seen_whatever_the_model(runs: dict[str, Any], name: str) -> None:
    only_two(runs)
    outcome = runs["models"][name]
    assert outcome["status"] == "APPLIED"
    assert outcome["observed"]["packs"] == 2
    assert outcome["observed"]["counted"]["AddN"] == 2


def test_sparse_gradients_are_named(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["models"]["embedding"]["observed"]["sparse_gradients"] == 1
    assert "Sparse gradients (1)" in runs["models"]["embedding"]["message"]


def test_a_step_that_reduces_nothing_is_not_called_packed(runs: dict[str, Any]) -> None:
    only_two(runs)
    # The model before it, of the same shapes and under the same strategy, was packed.
    assert runs["models"]["no reduction"]["status"] == "NO_EFFECT"
    assert "never called hierarchical_copy" in runs["models"]["no reduction"]["message"]


def test_eager_steps_cannot_be_verified(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["models"]["eager"]["status"] == "UNVERIFIABLE"
    assert "run_eagerly" in runs["models"]["eager"]["message"]


def test_batches_that_do_not_divide_train(runs: dict[str, Any]) -> None:
    """Also the first one, in which plain Keras 3 fails; each replica's mean counts the same."""
    only_two(runs)
    assert runs["uneven shares"] < 1e-6


def test_a_model_made_outside_the_scope_is_late(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["outside scope"]["status"] == "LATE"
    assert "with strategy.scope():" in runs["outside scope"]["message"]


def test_a_strategy_of_the_script_does_not_pass_for_ours(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert runs["own strategy"]["status"] == "NO_EFFECT"
    assert "tfvolta.build_strategy" in runs["own strategy"]["message"]


def test_xla_under_a_strategy(runs: dict[str, Any]) -> None:
    only_two(runs)
    assert "Trying to access" in runs["jit"]["forced"]  # the reason for refusing xla.jit: model on CPU replicas
    assert runs["jit"]["auto"]["effective"] is False
    assert runs["jit"]["auto alone"]["effective"] is KERAS3
    if KERAS3:
        assert "under a distribution strategy" in runs["jit"]["auto"]["reason"]
