"""Figures of a measurement in turns: medians, ratios to the reference in the same round, and where it was measured."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import platform
import subprocess
from typing import Any, Optional, Sequence

from benchmarks.turns import Contender, Result
from benchmarks.turns_options import Options
from tfvolta.measure.statistics import median, paired_ratio


class Lines:
    """A file of JSON lines.

    Args:
        path: The file, which is made anew; None for none.
    """

    def __init__(self, path: Optional[pathlib.Path]):
        self._path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")

    def __call__(self, row: dict[str, Any]) -> None:
        """Adds a line at once, so that it is there whatever happens next."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def place(options: Options) -> dict[str, Any]:
    """Where and how it was measured."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,memory.used", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        gpus = []
    return {
        "gpus": gpus,
        "cores": os.cpu_count(),
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "turns": dataclasses.asdict(options),
    }


def summaries(contenders: Sequence[Contender], result: Result, options: Options) -> list[dict[str, Any]]:
    """A row for each contender: medians, losses, and its ratio to the reference of its group.

    ``rate_ratio`` is of examples a second and ``time_ratio`` of seconds an example: pairs are the turns of one round,
    without those that are discarded, and the interval is a bootstrap's over the pairs.
    """
    found = []
    for each in contenders:
        rows = _kept(each.name, result, options)
        row: dict[str, Any] = {"contender": each.name, "group": each.group, "rounds": len(rows)}
        if each.name in result.left_out:
            row["left_out"] = result.left_out[each.name]
        if rows:
            row.update(_figures(rows, result.facts[each.name]))
            losses = [result.facts[each.name].get("first_loss")]
            losses += [turn.get("loss") for turn in result.rows if turn["contender"] == each.name]
            row["loss_by_epoch"] = [None if loss is None else round(loss, 5) for loss in losses]
        reference = next((other for other in contenders if other.group == each.group and other.reference), None)
        if rows and reference is not None and reference != each:
            row.update(_ratios(rows, _kept(reference.name, result, options), reference.name))
        found.append(row)
    return found


def _kept(name: str, result: Result, options: Options) -> dict[int, dict[str, Any]]:
    return {row["round"]: row for row in result.rows if row["contender"] == name and row["round"] >= options.discard}


def _figures(rows: dict[int, dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    rates = [row["examples"] / row["seconds"] for row in rows.values()]
    last = rows[max(rows)]
    found = {"examples_per_second": round(median(rates), 2), "by_round": [round(rate, 2) for rate in rates]}
    if "steps" in last:
        found["step_ms"] = round(1000 * median([row["seconds"] / row["steps"] for row in rows.values()]), 4)
    for name in ("parameters", "first_epoch_seconds"):
        if name in facts:
            found[name] = facts[name]
    if last.get("peak_gib") is not None:
        found["peak_gib"] = last["peak_gib"]
    return found


def _ratios(rows: dict[int, dict[str, Any]], others: dict[int, dict[str, Any]], against: str) -> dict[str, Any]:
    rounds = sorted(set(rows) & set(others))
    if not rounds:
        return {"against": against, "pairs": 0}
    mine = [rows[number]["seconds"] / rows[number]["examples"] for number in rounds]
    its = [others[number]["seconds"] / others[number]["examples"] for number in rounds]
    return {
        "against": against,
        "pairs": len(rounds),
        "rate_ratio": paired_ratio(its, mine).to_json(),
        "time_ratio": paired_ratio(mine, its).to_json(),
    }


def table(found: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of ``summaries`` as lines for a terminal."""
    lines = []
    for row in found:
        if "examples_per_second" not in row:
            lines.append(f"{row['contender']:34} nothing measured: {row.get('left_out', 'no time')[:300]}")
            continue
        said = f"{row['contender']:34} {row['examples_per_second']:10.1f}/s {row.get('step_ms', float('nan')):8.3f} ms"
        losses = row["loss_by_epoch"]
        said += f" {row['rounds']:2} rounds, loss {losses[0]} > {losses[-1]}"
        if "rate_ratio" in row:
            ratio = row["rate_ratio"]
            said += f", x{ratio['estimate']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}] of {row['against']}"
        lines.append(said + ("; LEFT OUT later" if "left_out" in row else ""))
    return lines
