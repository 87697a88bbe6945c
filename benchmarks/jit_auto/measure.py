"""Speed with XLA on and off, and which of them ``xla.jit: auto`` chooses, for models its rules were not written on.

    python benchmarks/jit_auto/measure.py --full --output results.jsonl
    python benchmarks/jit_auto/measure.py --models mlp gru          # tiny sizes, for a CPU

Both processes of a model take turns. ``auto`` needs no process of its own: it decides before a step is traced, by rules
that the measured processes evaluate for their model, and then trains as one of the two does.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import Any, Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.jit_auto.models import MODELS  # noqa: E402
from benchmarks.turn_waves import environ, take_waves  # noqa: E402
from benchmarks.turns import Contender, Result  # noqa: E402
from benchmarks.turns_options import add_arguments, options  # noqa: E402
from benchmarks.turns_summary import Lines, place, summaries  # noqa: E402

WORKER = pathlib.Path(__file__).with_name("worker.py")
GOAL = 0.95  # of the better choice's speed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    found.add_argument("--policy", default="mixed_float16")
    found.add_argument("--full", action="store_true", help="sizes for a GPU; tiny ones otherwise")
    found.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    found.add_argument("--together", type=int, default=5, help="models whose processes are up at the same time")
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--logs", type=pathlib.Path, help="folder for the logs of the processes")
    add_arguments(found, rounds=6, discard=0, limit_seconds=230.0, ready_seconds=85.0, turn_seconds=20.0)
    return found


def pair(name: str, arguments: argparse.Namespace) -> Iterator[Contender]:
    """Both ways to train a model."""
    given = [arguments.policy, str(arguments.seconds), "full" if arguments.full else "tiny"]
    for mode in ("off", "on"):
        command = [sys.executable, str(WORKER), name, mode, *given]
        yield Contender(f"{name}-{mode}", name, command, environ(), mode == "off")


def verdict(name: str, rows: dict[str, dict[str, Any]], result: Result) -> dict[str, Any]:
    """Of one model: the better choice, what auto chooses, and its share of the better one's speed."""
    facts = {mode: result.facts.get(f"{name}-{mode}", {}) for mode in ("off", "on")}
    known = facts["off"] or facts["on"]
    refused = facts["on"].get("refused_by_xla") or []
    chosen = known.get("auto_compiles")
    found: dict[str, Any] = {
        "model": name,
        "auto_by_rule": chosen,
        "auto_compiles": bool(chosen and not refused),  # a trial that XLA refuses has auto go on without it
        "refused_by_xla": refused,
        "on_is_compiled": facts["on"].get("compiled"),
        "reason": known.get("auto_reason", ""),
        "layers": known.get("layers", []),
    }
    found.update({f"{mode}_step_ms": rows[f"{name}-{mode}"].get("step_ms") for mode in ("off", "on")})
    ratio = rows[f"{name}-on"].get("rate_ratio")
    if ratio is None:
        return {**found, "share_of_better": None, "left_out": rows[f"{name}-on"].get("left_out", "no pairs")[:300]}
    on_over_off = ratio["estimate"]
    share = min(1.0, on_over_off) if found["auto_compiles"] else min(1.0, 1 / on_over_off)
    if facts["on"].get("compiled") is False:
        share = 1.0  # both are the same step
    return {**found, "on_over_off": ratio, "better": "on" if on_over_off > 1 else "off", "share_of_better": share}


def line_of(row: dict[str, Any]) -> str:
    """A verdict for a terminal."""
    said = f"{row['model']:16} off {row['off_step_ms']} ms, on {row['on_step_ms']} ms"
    if row["share_of_better"] is None:
        return f"{said}: not compared: {row['left_out'][:120]}"
    ratio = row["on_over_off"]
    said += f", on/off x{ratio['estimate']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    said += f", auto {'on' if row['auto_compiles'] else 'off'}: {row['share_of_better']:.3f} of the better"
    said += "" if row["on_is_compiled"] else " (on is not compiled either)"
    return said + ("" if row["share_of_better"] >= GOAL else "  WRONG RULE")


def main(given: Optional[Sequence[str]] = None) -> int:
    """Measures, and prints the verdicts last; 1 where a process was left out."""
    arguments = parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="jit_auto_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        asked, lines = options(arguments), Lines(arguments.output)
        lines({"place": place(asked), "command": sys.argv, "policy": arguments.policy, "full": arguments.full})
        names, size = arguments.models, arguments.together
        waves = [
            [each for name in names[start : start + size] for each in pair(name, arguments)]
            for start in range(0, len(names), size)
        ]
        result, measured = take_waves(waves, asked, folder, lines)
        rows = {row["contender"]: row for row in summaries(measured, result, asked)}
        found = [verdict(each.group, rows, result) for each in measured if each.reference]
        for row in (*rows.values(), *found):
            lines(row)
    for name, reason in result.left_out.items():
        print(f"left out {name}: {reason[:80]} ... {reason[-500:]}")
    print("\n".join(line_of(row) for row in found))
    shares = [row["share_of_better"] for row in found if row["share_of_better"] is not None]
    print(f"{len(shares)} of {len(names)} models compared; least share {min(shares, default=0.0):.3f}; goal {GOAL}")
    return int(bool(result.left_out or result.interrupted))


if __name__ == "__main__":
    sys.exit(main())
