"""``tfvolta bench``: contenders that fail leave the others and no process behind; real ones are compared in turns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

from tests.processes.launched import ROOT, clean_environment, once
from tfvolta.bench.result import BenchResult

LIMIT_SECONDS = 580
PLAIN = ("--set", "mixed_precision=null", "--set", "run.strict=false")


def bench(folder: Path, *words: str, code: Optional[int] = 0) -> tuple[dict[str, Any], str]:
    """Runs a bench; its result and what it said."""
    command = [sys.executable, "-m", "tfvolta", "bench", "mlp", "--tiny", "--json", *words]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert code is None or done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def stand_in(folder: Path) -> str:
    """An interpreter that runs the stand-in, whatever it is asked to run."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/processes/bench_contender.py" "$@"\n')
    path.chmod(0o755)
    return str(path)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def assert_none_is_left(folder: Path) -> None:
    logs = list(folder.glob("runs/*-bench/*.log"))
    pids = [int(pid) for log in logs for line in re.findall("PIDS (.*)", log.read_text()) for pid in line.split()]
    deadline = time.monotonic() + 30
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pids and [pid for pid in pids if is_there(pid)] == []


@once
def test_contenders_that_fail_say_why_and_the_others_go_on(tmp_path: Path) -> None:
    python = stand_in(tmp_path)
    words = []
    for name in ("crashes", "refused", "hangs", "dies", "stalls", "slow"):
        words += ["--against", f"none python={python} name={name}"]
    command = ("--limit", "10", "--rounds", "6", *words)
    result, _ = bench(tmp_path, "--config", "none", "--python", python, *command, code=1)
    entries = {entry["name"]: entry for entry in result["entries"]}
    assert entries["none"]["ending"] == entries["slow"]["ending"] == "measured"
    assert entries["crashes"]["ending"] == "crash" and "no such column" in entries["crashes"]["reason"]
    assert entries["refused"]["ending"] == "refused" and "expected: something else" in entries["refused"]["reason"]
    assert entries["hangs"]["ending"] == "timeout" and "compilation" in entries["hangs"]["reason"]
    assert entries["dies"]["ending"] == "crash" and "signal 6" in entries["dies"]["reason"]
    assert entries["stalls"]["ending"] == "timeout" and "round 2" in entries["stalls"]["reason"]
    (comparison,) = result["comparisons"]
    assert comparison["throughput"]["estimate"] == pytest.approx(0.5)
    assert_none_is_left(tmp_path)


@once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_bench_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    python = stand_in(tmp_path)
    command = [sys.executable, "-m", "tfvolta", "bench", "mlp", "--tiny", "--config", "none", "--python", python]
    command += ["--against", f"none python={python} name=hangs"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any("PIDS" in log.read_text() for log in tmp_path.glob("runs/*-bench/hangs*.log")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, number)
        process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode in (130, 143, -number)
    assert_none_is_left(tmp_path)


def test_a_tiny_model_is_compared_in_turns_with_the_untouched_script(tmp_path: Path) -> None:
    words = ("--rounds", "6", "--steps", "6", "--together", "--against", "none", *PLAIN)
    result, said = bench(tmp_path, *words)
    assert re.search("round 6 of 6: .*default .*none |round 6 of 6: .*none .*default ", said)
    ours, plain = result["entries"]
    for entry in (ours, plain):
        figures, (lap,) = entry["figures"], entry["laps"]
        assert figures["n"] == 6 and len(lap["warmup"]) == 2 and lap["parameters"] == 8970
        assert [epoch["steps"] for epoch in lap["epochs"]] == [6] * 6
        assert figures["multiply_adds"] == 32 * (2 * 64 * 64 + 64 * 10) and figures["mfu_unknown"] == "no GPU"
        assert figures["host_peak_bytes"] > 2**27 and figures["first_epoch_seconds"] > figures["epoch_seconds"]["low"]
        assert figures["losses"][0][-1] < figures["losses"][0][0]
    # The same seed and the same sums, with tfvolta or without.
    assert ours["figures"]["losses"][0] == pytest.approx(plain["figures"]["losses"][0], rel=1e-4)
    places = [{ours["laps"][0]["epochs"][i]["place"], plain["laps"][0]["epochs"][i]["place"]} for i in range(6)]
    assert places == [{0, 1}] * 6
    assert ours["laps"][0]["evidence"] and plain["laps"][0]["evidence"] is None
    (folder,) = tmp_path.glob("runs/*-bench")
    assert BenchResult.read(folder).model_dump(mode="json") == result


@once
@pytest.mark.timeout(600)
def test_stages_are_gated_on_logical_devices(tmp_path: Path) -> None:
    words = (
        "--stages",
        "--all-stages",
        "--together",
        "--logical-devices",
        "2",
        "--workers",
        "2",
        "--rounds",
        "1",
        "--seeds",
        "0",
    )
    result, _ = bench(tmp_path, *words, "--warmup-epochs", "1", "--steps", "2", *PLAIN, "--set", "xla=null", code=1)
    assert {entry["name"]: entry["reason"] for entry in result["entries"] if entry["ending"] != "measured"} == {}
    devices = {entry["name"]: entry["figures"]["replicas"] for entry in result["entries"]}
    assert devices == {"baseline": 1, "one device": 1, "one node": 2, "several nodes": 2}
    examples = [entry["figures"]["examples_per_step"] for entry in result["entries"]]
    assert examples == [32, 32, 64, 64]
    for gate in result["gates"]:
        assert gate["passes"] is False and gate["reference"] == "baseline"  # one round proves nothing
        assert gate["comparison"]["host_peak"] > 0.5 and gate["comparison"]["epoch_time"]["estimate"] > 0
    node = result["gates"][1]
    assert node["stage"] == "one node"
    assert node["efficiency"] == pytest.approx(node["comparison"]["throughput"]["estimate"] / 2)


@once
def test_data_of_ones_own(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=source.random((50, 64), "float32"), y=source.integers(0, 10, 50))
    words = ("--data", "own.npz", "--rounds", "1", "--warmup-epochs", "1", "--steps", "3", "--config", "none")
    result, _ = bench(tmp_path, *words)
    assert result["data"] == "own.npz" and result["entries"][0]["laps"][0]["epochs"][0]["steps"] == 3
