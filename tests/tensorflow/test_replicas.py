"""Two and four replicas on logical CPUs train as one process does on the same batch, on every stack.

On Keras 3 the step that XLA compiles inside each replica is run too, without XLA, which CPUs cannot do.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any, Mapping

import pytest

from tests.stack import KERAS3

pytestmark = pytest.mark.timeout(900)  # two processes, each with TensorFlow's start and some dozen models

ROOT = pathlib.Path(__file__).parents[2]
FEW = ("sgd", "overflow on the last")
MANY = (
    *FEW,
    "adam",
    "adamw",
    "mixed",
    "clipnorm",
    "scaled and clipped",
    "overflow on the first",
    "batch norm",
    "embedding",
    "several steps a call",
    "packs",
    *(("overwritten by the average", "nadam", "eager") if KERAS3 else ()),
)
WAYS = ("merged", "unmerged") if KERAS3 else ("merged",)
# Adam divides by the root of a mean of squares, which magnifies rounding; overwriting restarts from an average. With
# float16 the order of additions shows in the third digit.
LOOSER = {"adam": 1e-4, "adamw": 1e-4, "nadam": 1e-4, "overwritten by the average": 1e-4, "mixed": 2e-2}


@pytest.fixture(scope="module", params=(2, 4))
def runs(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What a process with so many logical CPUs saw."""
    command = [sys.executable, "-m", "tests.tensorflow.replica_runs", str(request.param)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=800, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    return {"replicas": request.param, **json.loads(lines[-1][len("RESULT ") :])}


def case(runs: Mapping[str, Any], name: str, way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case on replicas, and on one device."""
    if name not in FEW and runs["replicas"] > 2:
        pytest.skip("looked at with two replicas only, to save time")
    if way not in runs[name]:
        pytest.skip("an eager step has no function to compile")
    return runs[name][way], runs[name]["alone"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MANY)
def test_weights_are_those_of_one_process(runs: Mapping[str, Any], name: str, way: str) -> None:
    found, alone = case(runs, name, way)
    assert found["difference"] <= LOOSER.get(name, 1e-5)
    assert (found["applied"], found["skipped"], found["scale"]) == (alone["applied"], alone["skipped"], alone["scale"])
    assert found["applied"] + found["skipped"] == 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MANY)
def test_logs_and_predictions_are_those_of_one_process(runs: Mapping[str, Any], name: str, way: str) -> None:
    found, alone = case(runs, name, way)
    assert set(found) >= set(alone) >= {"loss", "mae"}
    for key in ("loss", "mae", *({"evaluated", "predicted"} & set(alone))):
        if math.isfinite(alone[key]):
            assert found[key] == pytest.approx(alone[key], rel=2e-2 if name == "mixed" else 1e-3), key
        else:
            assert not math.isfinite(found[key]), key


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ("overflow on the last", "overflow on the first"))
def test_an_overflow_on_one_replica_skips_the_step_on_all(runs: Mapping[str, Any], name: str, way: str) -> None:
    found, _ = case(runs, name, way)
    assert (found["applied"], found["skipped"], found["scale"]) == (19, 1, 512.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MANY)
def test_reductions_are_seen_in_the_graph(runs: Mapping[str, Any], name: str, way: str) -> None:
    found, _ = case(runs, name, way)
    outcome = found["communication"]
    if name == "eager":
        assert outcome["status"] == "UNVERIFIABLE"
        return
    assert outcome["status"] == "APPLIED", outcome
    # A step that is not merged has its replica's own operations, another one those of all replicas.
    replicas = runs["replicas"] if way == "merged" else 1
    packs = 3 if name == "packs" else 1
    assert outcome["observed"]["packs"] == packs
    assert sum(outcome["observed"]["counted"].values()) == packs * replicas


@pytest.mark.skipif(not KERAS3, reason="Keras 2 compiles inside each replica by itself")
def test_a_compiled_step_is_a_function_of_its_own_on_each_replica(runs: Mapping[str, Any]) -> None:
    found = runs["compiled"]
    assert found["must_compile"] and found["compiled_on"] == [f"CPU:{i}" for i in range(runs["replicas"])]
    assert found["gathered"] == 0  # XLA has no kernel for it: an embedding's gradients are reduced as dense tensors
    assert found["faults"] == [] and found["obstacles"] == []


@pytest.mark.skipif(not KERAS3, reason="Keras 2 compiles inside each replica by itself")
def test_a_step_that_merges_replicas_is_found_before_it_runs(runs: Mapping[str, Any]) -> None:
    (reason,) = runs["uncompilable"]
    assert "only_first_replica" in reason and "merge_call" in reason
