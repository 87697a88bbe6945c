"""Prints the ratio of each variant to the hand-written one, from the committed results.

python benchmarks/resnet50/summarise.py benchmarks/resnet50/results/2026-11-30_h200.json
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def paired_ratios(results: dict[str, Any], variant: str) -> list[float]:
    """Ratios of pairs that ran at the same moment on two GPUs."""
    rows = results["paired"]
    ratios = []
    for left, right in zip(rows[::2], rows[1::2]):
        rates = {row["variant"]: row["result"]["images_per_second"] for row in (left, right)}
        if variant in rates:
            ratios.append(rates[variant] / rates["by_hand"])
    return ratios


def interleaved_ratios(results: dict[str, Any], variant: str) -> list[float]:
    """Ratios of runs that followed each other on one GPU, round by round."""
    ratios = []
    for group in ("interleaved_30_steps", "interleaved_60_steps", "interleaved_60_steps_one_gpu_host"):
        rounds: dict[int, dict[str, float]] = {}
        for row in results[group]:
            rounds.setdefault(row["round"], {})[row["variant"]] = row["result"]["images_per_second"]
        ratios += [rates[variant] / rates["by_hand"] for rates in rounds.values() if variant in rates]
    return ratios


RESULTS = Path(__file__).with_name("results") / "2026-11-30_h200.json"


def table_rows() -> list[dict[str, str]]:
    """Median and range of both ways of measuring, for the table in README."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return [
        {
            "name": variant,
            "paired": _spread(paired_ratios(results, variant)),
            "interleaved": _spread(interleaved_ratios(results, variant)),
        }
        for variant in ("run", "with_callbacks")
    ]


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> None:
    """Prints one line for each variant and way of measuring."""
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(results["machine"])
    for variant in ("run", "with_callbacks"):
        for name, ratios in (
            ("paired", paired_ratios(results, variant)),
            ("interleaved", interleaved_ratios(results, variant)),
        ):
            shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"{variant:15s} {name:12s} median {statistics.median(ratios):.3f} of by_hand, each: {shown}")


if __name__ == "__main__":
    main()
