"""The benchmark of the monitors, at a tiny size: processes take turns, and its lines are what the README says."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.stack import KERAS3

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = ["--tiny", "--steps", "10", "--gradients-every", "20", "--rounds", "5", "--only", "xla/(off|alarms-10)"]


@pytest.mark.skipif(not KERAS3, reason="one stack is enough for a script that others share")
def test_each_variant_is_measured_in_each_round(tmp_path: pathlib.Path) -> None:
    output, logs = tmp_path / "lines.jsonl", tmp_path / "logs"
    command = [sys.executable, str(ROOT / "benchmarks" / "monitors" / "measure.py"), *SIZE]
    command += ["--output", str(output), "--logs", str(logs), "--ready-seconds", "200", "--limit-seconds", "240"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=270, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    timed = [row for row in rows if "round" in row]
    assert {(row["round"], row["contender"]) for row in timed} == {
        (number, f"xla/{name}") for number in range(5) for name in ("off", "alarms-10")
    }
    assert all(row["seconds"] > 0 and row["steps"] == 10 and row["examples"] == 40 for row in timed)
    (cost,) = [row for row in rows if "cost_percent" in row]
    assert cost["windows"] == 2 and cost["low"] <= cost["estimate"] <= cost["high"]
    (evidence,) = (logs / "xla" / "alarms-10").glob("*/evidence.json")
    outcomes = json.loads(evidence.read_text(encoding="utf-8"))["outcomes"]
    assert {outcomes[name]["status"] for name in ("alarms", "gradient_monitor", "policy")} == {"APPLIED"}
    assert "target: below 1 %" in done.stdout.splitlines()[-1]
