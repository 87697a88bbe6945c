"""Writes the tables of docs/estimate_memory.md from the files in ``results``; ``--check`` says whether they are so.

python benchmarks/memory_estimate/document.py
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from typing import Any, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "estimate_memory.md"
RESULTS = pathlib.Path(__file__).parent / "results"
GIB = 2**30
NAMES = {"resnet50": "ResNet-50", "bert_large": "BERT-large", "lstm": "LSTM"}
_EMPTY = "No result is in `benchmarks/memory_estimate/results` yet."


def lines_of(pattern: str) -> list[dict[str, Any]]:
    """The lines of all result files whose name ends so."""
    files = sorted(RESULTS.glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines() if line]


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    """What makes a line the same point as another."""
    return line["model"], line["policy"], line["xla"], line["batch"], line.get("workspace_limit_mb")


def running() -> str:
    """Predictions of the running step against its peaks."""
    points = [line for line in lines_of("*points.jsonl") if line.get("steady_peak_bytes")]
    estimates = {key_of(line): line["estimate_gib"] * GIB for line in lines_of("*estimates.jsonl") if "parts" in line}
    rows = []
    for line in sorted(points, key=lambda each: [str(part) for part in key_of(each)[:3]] + [f"{each['batch']:06}"]):
        first, steady = line["first_step_peak_bytes"], line["steady_peak_bytes"]
        estimate = estimates.get(key_of(line))
        rows.append(
            [
                *_named(line),
                _gib(steady),
                _gib(first),
                _gib(line.get("predicted_peak_bytes")),
                _error(line.get("predicted_peak_bytes"), steady),
                _gib(estimate),
                _error(estimate, max(first, steady)),
            ]
        )
    titles = [
        "model",
        "type",
        "XLA",
        "batch",
        "steady GiB",
        "first step GiB",
        "predicted",
        "error",
        "estimated",
        "error",
    ]
    return _table(titles, rows)


def before() -> str:
    """Estimates before training against peaks, of the version that made the file."""
    rows = [
        [
            *_named(line),
            f"{line['peak_gib']:.2f}",
            f"{line['estimate_gib']:.2f}",
            f"{line['estimate_error_percent']:+.1f} %",
        ]
        for line in lines_of("*_h200.jsonl")
        if "peak_gib" in line and "estimate_error_percent" in line
    ]
    return _table(["model", "type", "XLA", "batch", "measured GiB", "estimated", "error"], rows)


def recomputed() -> str:
    """Predictions of the version that made the table above against those of a later one, for the same peaks."""
    rows = [
        [
            *_named(line),
            _gib(line["steady_peak_bytes"]),
            _error(line["predicted_before_bytes"], line["steady_peak_bytes"]),
            f"{line['predicted_gib']:.2f}",
            _error(line["predicted_gib"] * GIB, line["steady_peak_bytes"]),
            _error(line["predicted_gib"] * GIB, line["first_step_peak_bytes"]),
            "found with it" if line["found_with"] else "check",
        ]
        for line in sorted(lines_of("*_recomputed.jsonl"), key=lambda each: [str(part) for part in key_of(each)[:3]])
    ]
    titles = [
        "model",
        "type",
        "XLA",
        "batch",
        "steady GiB",
        "error before",
        "predicted",
        "error",
        "of the first step",
        "",
    ]
    return _table(titles, rows)


def _named(line: dict[str, Any]) -> list[str]:
    limit = line.get("workspace_limit_mb")
    model = NAMES[line["model"]] + (f", limit {limit} MiB" if limit else "")
    return [model, line["policy"], line["xla"], str(line["batch"])]


def _gib(size: Optional[float]) -> str:
    return "-" if not size else f"{size / GIB:.2f}"


def _error(size: Optional[float], measured: Optional[float]) -> str:
    return "-" if not size or not measured else f"{100 * (size / measured - 1):+.1f} %"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return _EMPTY
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


def written(page: str) -> str:
    """A page with the tables of the results in it."""
    for name, table in (("running", running()), ("recomputed", recomputed()), ("before", before())):
        page = re.sub(
            rf"(<!-- {name}: .*? -->\n).*?(\n<!-- end -->)",
            lambda found, table=table: f"{found[1]}{table}{found[2]}",  # type: ignore[misc]
            page,
            flags=re.S,
        )
    return page


def main(given: Optional[Sequence[str]] = None) -> int:
    """Writes the page, or checks it; 1 where it is not as the results say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args(given).check:
        return int(written(page) != page)
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
