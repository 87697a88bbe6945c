"""The benchmark of the monitors runs, at a tiny size, and its lines are what the README says."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = ["--model", "tiny", "--batch", "4", "--steps", "12", "--warmup", "2", "--rounds", "2", "--gradients-every", "5"]


@pytest.mark.filterwarnings("ignore")
def test_each_variant_is_measured_in_each_round(tmp_path: pathlib.Path) -> None:
    spec = importlib.util.spec_from_file_location("measure_monitors", ROOT / "benchmarks" / "monitors" / "measure.py")
    assert spec is not None and spec.loader is not None
    measure: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measure)
    output = tmp_path / "lines.jsonl"
    rows = measure.main([*SIZE, "--alarms-every", "4", "--output", str(output)])
    assert [json.loads(line) for line in output.read_text().splitlines()] == json.loads(json.dumps(rows))
    names = {"off", "gradients", "all, alarms every 4"}
    timed = [row for row in rows if "round" in row]
    assert {(row["round"], row["variant"]) for row in timed} == {(number, name) for number in (0, 1) for name in names}
    assert all(row["step_ms"] > 0 and row["images_per_second"] > 0 for row in timed)
    costs = [row for row in rows if "cost_percent" in row]
    assert {row["variant"] for row in costs} == names - {"off"}
    assert all(row["low"] <= row["cost_percent"] <= row["high"] and row["device"] for row in costs)
