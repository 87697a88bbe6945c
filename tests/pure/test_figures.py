"""Every figure in README.md comes from a file under benchmarks/."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/resnet50/results/2026-11-30_h200.json"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_resnet50_ratios_are_those_of_the_raw_results() -> None:
    summarise = _module(ROOT / "benchmarks/resnet50/summarise.py")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for variant, label in (("run", "`tfvolta run`, script untouched"), ("with_callbacks", "two callbacks in `fit`")):
        row = next(line for line in README.splitlines() if line.startswith(f"| {label}"))
        shown = [float(figure) for figure in re.findall(r"\d\.\d{3}", row)]
        paired, interleaved = (
            ratios(results, variant) for ratios in (summarise.paired_ratios, summarise.interleaved_ratios)
        )
        expected = [statistics.median(paired), min(paired), max(paired)]
        expected += [statistics.median(interleaved), min(interleaved), max(interleaved)]
        assert shown == [round(ratio, 3) for ratio in expected], row
    assert "NVIDIA H200" in README and "No V100 was available" in README


def test_the_raw_results_name_machine_versions_and_commands() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert results["machine"] and results["versions"]["tensorflow"] and results["commands"]
    rows = results["paired"] + results["interleaved_30_steps"] + results["interleaved_60_steps"]
    assert all(row["result"]["images_per_second"] > 0 for row in rows)


CARDS = sorted((ROOT / "tfvolta/knobs/cards").glob("*.md"))
BASELINE = json.loads((ROOT / "benchmarks/baseline/2026-11-30_h200.json").read_text(encoding="utf-8"))
KERNELS = json.loads((ROOT / "benchmarks/keras3_kernels/results/2026-12-01_h200.json").read_text(encoding="utf-8"))
RATE = re.compile(r"\b\d{1,2},\d{3}\b|\b\d{3}\b(?= images/s| sequences/s| against| built| without| in float32|, which)")


def _measured() -> set[str]:
    """Every rate in the baseline, as its rows print it, and those of Keras 3's kernels."""
    values = [value for row in BASELINE["rows"] for value in row.values()]
    kernels = [row["examples_per_second"] for row in KERNELS["rows"] if "examples_per_second" in row]
    return {figure for value in values for figure in re.findall(r"[\d,]*\d", value)} | {
        f"{round(rate):,}" for rate in kernels
    }


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_rates_in_cards_are_rows_of_the_baseline(card: Path) -> None:
    text = card.read_text(encoding="utf-8")
    measured = text.split("## Measurement")[1].split("## Sources")[0].split("Published")[0]
    rates = RATE.findall(measured)
    assert [rate for rate in rates if rate not in _measured()] == []
    assert not rates or "NVIDIA H200" in measured


def test_the_baseline_says_where_it_comes_from() -> None:
    assert all(BASELINE[key] for key in ("machine", "versions", "method", "command"))
    assert {"703", "5,846", "6,197", "9,867"} <= _measured()
