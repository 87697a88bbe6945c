"""Gradients that travel as float16 and windows of several batches: equal to one process, and seen in the graphs."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.stack import KERAS3, STACK
from tests.tensorflow.reduction_models import EVERY, MAKERS, WINDOWS
from tests.tensorflow.reduction_training import FEW

pytestmark = pytest.mark.timeout(900)  # processes with TensorFlow's start and a hundred small traces

ROOT = pathlib.Path(__file__).parents[2]
BYTES = 196  # 49 float32 weights
WIDE = {"CollectiveReduceV2[float32]"}
HALF = {"CollectiveReduceV2[float16]"}
# What each process looks at; most of it once, with two replicas.
RUNS: dict[str, tuple[str, ...]] = {
    "1": ("session", "few windows", "xla", "hook", "left over", "accumulation", "cases", "saved"),
    "2": ("session", "windows", "half", "numbers", "steps", "left over", "accumulation", "cases", "saved"),
    "2 --without-merge-calls": ("few windows", "half", "numbers"),
    "4": ("few windows", "numbers"),
}
if STACK == "tf_keras":
    RUNS = {"2": ("session", "half")}  # all that tests/slow.py names for it


@functools.cache
def process(run: str, folder: str) -> dict[str, Any]:
    """What a process with so many replicas saw."""
    command = [sys.executable, "-m", "tests.tensorflow.reduction_runs", *run.split(), *RUNS[run], folder]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=800, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    assert found["stack"] == STACK
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("runs"))


def part(name: str) -> Any:
    """Runs a test with each process that looked at a part."""
    return pytest.mark.parametrize("run", [run for run, parts in RUNS.items() if name in parts])


def replicas(run: str) -> int:
    return int(run.split()[0])


def is_one_update_in_a_window(found: dict[str, Any], run: str, dtype: set[str] = WIDE, eager: bool = False) -> None:
    """Counts, and graphs of which one reduces once and the other not at all."""
    assert (found["batches"], found["updates"], found["pending"]) == (EVERY * WINDOWS, WINDOWS, 0)
    assert (found["applied"], found["skipped"]) == (WINDOWS, 0)
    assert found["gradient_bytes"] == BYTES
    several = replicas(run) > 1
    size = BYTES // 2 if dtype is HALF else BYTES
    assert found["wire_bytes"] == (size if several else 0)
    if eager:
        assert found["graphs"] == {}
        return
    operations, taken_in, others = found["graphs"]["update"]
    assert operations == (dict.fromkeys(dtype, replicas(run)) if several else {})
    assert taken_in == found["wire_bytes"]
    assert found["graphs"]["accumulate"] == [{}, 0, others]
    assert others == 0 or "without" in run  # Keras 2's metrics are reduced with each batch there


@part("windows")
def test_windows_train_like_batches_so_many_times_as_large(run: str, folder: str) -> None:
    found = process(run, folder)["windows"]
    assert set(found) >= set(MAKERS)
    for name in (*MAKERS, "steps_per_execution 5", "steps_per_execution 6", "arrays"):
        assert found[name]["difference"] < 1e-6, name
        is_one_update_in_a_window(found[name], run)


@part("few windows")
def test_windows_with_other_numbers_of_replicas(run: str, folder: str) -> None:
    found = process(run, folder)["few windows"]
    for name in ("adam", *FEW):
        assert found[name]["difference"] < 1e-6, name
        is_one_update_in_a_window(found[name], run)


@part("windows")
def test_windows_with_loss_scales_and_in_half_precision_and_run_eagerly(run: str, folder: str) -> None:
    found = process(run, folder)["windows"]
    for name in ("dynamic scale", "fixed scale", "eager"):
        assert found[name]["difference"] < 1e-6, name
        is_one_update_in_a_window(found[name], run, eager=name == "eager")
    assert found["mixed_float16"]["difference"] < 2e-3  # activations are rounded to float16
    is_one_update_in_a_window(found["mixed_float16"], run)


@part("xla")
def test_windows_in_a_step_that_xla_compiles(run: str, folder: str) -> None:
    for name, found in process(run, folder)["xla"].items():
        assert found["difference"] < 1e-6, name
        assert found["faults"] == [] and found["compiled"]
        assert (found["updates"], found["applied"]) == (WINDOWS, WINDOWS)


@part("half")
def test_gradients_travel_as_float16_in_half_the_bytes(run: str, folder: str) -> None:
    results = process(run, folder)["half"]
    copied = results["hierarchical copy"]
    assert 0 < copied["difference"] < 2e-3 and copied["wire_bytes"] == BYTES // 2
    assert copied["graphs"]["update"][0] == {"AddN[float16]": 2}  # two packs of two replicas
    for name in set(results) - {"hierarchical copy"}:
        found = results[name]
        assert 0 < found["difference"] < 2e-3, name  # rounded to 11 bits on the way, twelve times
        operations, taken_in, _ = found["graphs"]["update"]
        assert operations == {"CollectiveReduceV2[float16]": replicas(run)}, name
        assert (found["gradient_bytes"], found["wire_bytes"], taken_in) == (BYTES, BYTES // 2, BYTES // 2)
    is_one_update_in_a_window(results["both"], run, HALF)


@part("numbers")
def test_small_gradients_survive_with_a_loss_scale_and_large_ones_stay_finite(run: str, folder: str) -> None:
    found, count = process(run, folder)["numbers"], replicas(run)
    for name, expected in {"small": 0.0, "small scaled": -1e-9, "large": -32768.0, "infinite": -math.inf}.items():
        weights = found[name][:count]
        assert weights == pytest.approx([expected] * count, rel=1e-2), name  # the scaled ones are no whole float16
    assert found["one large"][:count] == pytest.approx([-(32768.0 / count)] * count, rel=1e-2)


@part("numbers")
@pytest.mark.parametrize("travel", ["fp16", "fp32"])
def test_an_overflow_on_one_replica_skips_the_step_on_all(run: str, folder: str, travel: str) -> None:
    found = process(run, folder)["numbers"]
    count = replicas(run)
    assert found[f"overflow {travel}"] == [*[-1.0] * count, 512.0, 1, 1]
    # In the first, then in the second batch of a window: two windows of four are left out, the scale halves twice.
    assert found[f"overflow in windows {travel}"] == [*[-2.0] * count, 256.0, 2, 2]
    assert found["overflow on the wire"] == [*[-1.0] * count, 512.0, 1, 1]  # finite, and no float16


@part("hook")
@pytest.mark.parametrize(
    ("case", "dtype", "difference", "size"),
    [
        ("None False", "float32", 1e-6, BYTES),
        ("None True", "float32", 1e-6, BYTES),
        ("fp16 False", "float16", 1e-3, BYTES // 2),
        ("fp16 True", "float32", 1e-6, BYTES),  # it compresses by itself
    ],
)
def test_another_all_reduce_takes_the_strategys_place(
    run: str, folder: str, case: str, dtype: str, difference: float, size: int
) -> None:
    found = process(run, folder)["hook"][case]
    assert found["dtypes"] == [dtype]
    assert found["difference"] < difference
    assert found["calls"] % 4 == 0  # four gradients, once in each trace of the function that updates
    assert (found["updates"], found["wire_bytes"]) == (WINDOWS, size)


@part("steps")
@pytest.mark.parametrize("name", ["own step", "two optimizers", "scaled step"])
def test_train_steps_of_a_script_s_own_are_served(run: str, folder: str, name: str) -> None:
    found = process(run, folder)["steps"][name]
    assert found["difference"] < 1e-6
    assert (found["updates"], found["applied"]) == (WINDOWS, WINDOWS)
    operations, taken_in, others = found["graphs"]["update"]
    assert operations == {"CollectiveReduceV2[float32]": replicas(run) * (2 if name == "two optimizers" else 1)}
    assert (taken_in, others) == (BYTES, 0)
    assert found["graphs"]["accumulate"] == [{}, 0, 0]


@part("steps")
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_sparse_gradients_stay_sparse_and_equal(run: str, folder: str, name: str) -> None:
    found = process(run, folder)["steps"]
    windows, half = found[f"sparse {name}"], found[f"sparse half {name}"]
    assert windows["difference"] < 1e-6 and windows["untouched"] == 0.0
    assert "CollectiveGatherV2[float32]" in windows["graphs"]["update"][0]  # gathered, so not made dense
    assert windows["graphs"]["accumulate"] == [{}, 0, 0]
    assert half["difference"] < 1e-3
    operations = half["graphs"]["update"][0]
    assert "CollectiveGatherV2[float16]" in operations and "CollectiveReduceV2[float16]" in operations
    assert not any(key.endswith("[float32]") for key in operations)


@part("steps")
def test_two_updates_of_a_variable_in_a_step_are_refused(run: str, folder: str) -> None:
    text = process(run, folder)["steps"]["twice"]
    assert "given to the optimizer once in a step" in text and "kernel" in text


@part("left over")
def test_batches_that_fill_no_window_go_on_in_the_next_epoch(run: str, folder: str) -> None:
    found = process(run, folder)["left over"]
    assert set(found) >= {"known 1", "known 2", "known 3", "unknown 1", "arrays 2", "new fit"}
    for name in set(found) - {"new fit"}:
        assert found[name]["difference"] < 1e-6, name
        counts = [found[name][key] for key in ("batches", "updates", "pending", "applied", "skipped")]
        assert counts == [21, 7, 0, 7, 0], name
        assert found[name]["loss"] == pytest.approx(found["known 1"]["loss"], rel=1e-5), name


@part("left over")
def test_a_new_fit_begins_with_an_empty_window(run: str, folder: str) -> None:
    found = process(run, folder)["left over"]["new fit"]
    assert (found["after one"]["updates"], found["after one"]["pending"]) == (1, 1)
    assert (found["updates"], found["applied"]) == (WINDOWS, 1 + WINDOWS)
    assert found["difference"] < 1e-6


@pytest.mark.skipif(not KERAS3, reason="Keras 2's optimizers accumulate nothing")
@part("accumulation")
@pytest.mark.parametrize("scale", ["plain", "scaled"])
@pytest.mark.parametrize("name", ["momentum", "adam", "ema"])
def test_keras_s_own_accumulation_is_carried_out_where_keras_fails(
    run: str, folder: str, name: str, scale: str
) -> None:
    if replicas(run) == 1 and name != "ema":
        pytest.skip("Keras does it rightly with one replica")
    found = process(run, folder)["accumulation"][f"{name} {scale}"]
    assert found["taken"]
    assert found["difference"] < 1e-6 and found["averages"] < 1e-6
    assert (found["iterations"], found["batches"]) == (WINDOWS, EVERY * WINDOWS)


@pytest.mark.skipif(not KERAS3, reason="Keras 2's optimizers accumulate nothing")
@part("accumulation")
def test_both_accumulations_together_are_refused(run: str, folder: str) -> None:
    text = process(run, folder)["accumulation"]["both"]
    assert "SGD(gradient_accumulation_steps=2)" in text and "communication.reduce_every: 3" in text


@part("cases")
def test_faults_that_were_reported_elsewhere(run: str, folder: str) -> None:
    found = process(run, folder)["cases"]
    averages = {name: value for name, value in found.items() if name.startswith("average")}
    for name in set(found) - set(averages):
        assert found[name] < 1e-6, name
    assert len(set(found) - set(averages)) == (4 if KERAS3 else 2)
    if KERAS3:  # after three updates, with and without accumulation; the weight was 0, then -0.5, -1 and -1.5
        assert averages == pytest.approx({"average None": -0.645, "average 4": -0.645}, abs=1e-5)


@part("saved")
def test_sums_are_in_no_saved_file(run: str, folder: str) -> None:
    found = process(run, folder)["saved"]
    assert found["pending"] == 1 and found["plain"]
    assert found["difference"] == 0.0 and found["iterations"] == 1
    assert found["variables"][0] == found["variables"][1]


@part("session")
@pytest.mark.parametrize("name", ["plain", "own step"])
def test_settings_from_a_config_end_as_they_were_seen(run: str, folder: str, name: str) -> None:
    found = process(run, folder)["session"][name]
    compression, window = (found["endings"][key] for key in ("compression", "reduce_every"))
    assert window["status"] == "APPLIED"
    assert (window["observed"]["updates"], window["observed"]["optimizer_steps"]) == (1, 1)
    if replicas(run) == 1:
        assert compression["status"] == "NO_EFFECT"
        assert window["message"] == "One update in 3 batches."
    else:
        assert compression["status"] == "APPLIED"
        assert "98 bytes a replica and update in place of 196 bytes" in compression["message"]
        assert compression["observed"]["operations"] == {"CollectiveReduceV2[float16]": replicas(run)}
        assert "A replica sends 33 bytes a batch in place of 196 bytes." in window["message"]
        assert found["endings"]["communication"]["status"] == "APPLIED"
    measured = found["measured"]
    assert (measured["batches"], measured["updates"], measured["unused_batches"]) == (4, 1, 1)
    assert found["steps"] == [4]
    assert found["undone"]["compression"] and found["undone"]["reduce_every"] and not found["left"]


@part("session")
def test_a_fit_that_is_shorter_than_a_window_shows_nothing_yet(run: str, folder: str) -> None:
    found = process(run, folder)["session"]["short"]
    names = ("reduce_every", "compression", "communication") if replicas(run) > 1 else ("reduce_every",)
    assert {name: found["endings"][name]["status"] for name in names} == dict.fromkeys(names, "PENDING")
    assert (found["measured"]["updates"], found["measured"]["unused_batches"]) == (0, 2)


@part("session")
def test_a_step_that_goes_past_the_settings_is_no_success(run: str, folder: str) -> None:
    found = process(run, folder)["session"]
    past = found["past"]["endings"]
    assert past["reduce_every"]["status"] == "NO_EFFECT" and "took 0 steps" in past["reduce_every"]["message"]
    assert past["compression"]["status"] == "NO_EFFECT"
    if replicas(run) > 1:
        itself = found["itself"]["endings"]["reduce_every"]
        assert itself["status"] == "NO_EFFECT"
        assert "reduces 196 bytes with every batch by itself" in itself["message"]
