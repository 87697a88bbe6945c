"""Peak memory and step time with activations kept and computed again, in turns on one device; see README.md.

    python benchmarks/recompute/measure.py --output results.jsonl
    python benchmarks/recompute/measure.py --models transformer --ways plain every-4 budget-50 --jit off

A way is ``plain``, ``every-N`` blocks, or ``budget-P`` in percent of what tfvolta estimates for plain training.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any, Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.turn_waves import environ, take_waves  # noqa: E402
from benchmarks.turns import Contender, Result  # noqa: E402
from benchmarks.turns_options import add_arguments, options  # noqa: E402
from benchmarks.turns_summary import Lines, place, summaries  # noqa: E402

WORKER = pathlib.Path(__file__).with_name("worker.py")
FULL = {"tokens": 128, "width": 1024, "heads": 16, "blocks": 24, "vocabulary": 30522, "pixels": 224}
TINY = {"tokens": 8, "width": 16, "heads": 2, "blocks": 3, "vocabulary": 50, "pixels": 32}
BATCH = {"transformer": 64, "resnet152": 128}
# Budgets that leave less than half by a count in the traced graph; see README.md.
WAYS = {"transformer": ["plain", "every-4", "budget-35"], "resnet152": ["plain", "every-4", "budget-40"]}
# Bounds of a process's memory, GiB, that together fit onto a card of 141 GB; half as much again as is needed.
LIMITS_GIB = {"plain off": 30.0, "plain on": 23.0, "budget off": 21.0, "budget on": 18.0, "every": 15.0}
MEMORY_GOAL, TIME_GOAL = 0.5, 1.35
GIB = 2**30


def parser() -> argparse.ArgumentParser:
    """The command line; defaults are the sizes of BERT-large and ResNet-152."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--models", nargs="+", default=list(BATCH), choices=list(BATCH))
    found.add_argument("--ways", nargs="+", help="for every model; by default plain, every-4 and a budget")
    found.add_argument("--jit", nargs="+", default=["off", "on"], choices=["off", "on"])
    found.add_argument("--policy", default="mixed_float16")
    found.add_argument("--batch", type=int, help="for every model; by default 64 sequences or 128 images")
    found.add_argument("--tokens", type=int, help="of a sequence; by default 128")
    found.add_argument("--seconds", type=float, default=1.5, help="of a turn")
    found.add_argument("--unbounded", action="store_true", help="no bound on the memory of a process")
    found.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--logs", type=pathlib.Path, help="folder for the logs of the processes")
    add_arguments(found, rounds=5, discard=0, limit_seconds=560.0, ready_seconds=210.0)
    return found


def wave(model: str, arguments: argparse.Namespace) -> Iterator[Contender]:
    """Every way to train a model, with XLA and without."""
    size = dict(TINY if arguments.tiny else FULL)
    size.update({"tokens": arguments.tokens} if arguments.tokens else {})
    batch = arguments.batch or (2 if arguments.tiny else BATCH[model])
    for jit in arguments.jit:
        for way in (each.replace("-", " ") for each in arguments.ways or WAYS[model]):
            kind = way.split()[0]
            limit = LIMITS_GIB.get(f"{kind} {jit}") or LIMITS_GIB[kind]
            plan = {"model": model, "policy": arguments.policy, "jit": jit, "batch": batch, "way": way, "size": size}
            plan.update(seconds=arguments.seconds, limit_gib=None if arguments.unbounded else limit)
            group = f"{model}, XLA {jit}"
            command = [sys.executable, str(WORKER), json.dumps(plan)]
            yield Contender(f"{model} {jit} {way}".replace(" ", "-"), group, command, environ(), way == "plain")


def with_memory(rows: list[dict[str, Any]], result: Result) -> list[dict[str, Any]]:
    """Summaries with bytes: the peak of any turn, what is above weights and optimiser, and that without gradients."""
    references: dict[str, dict[str, Any]] = {}
    for row in rows:
        facts = result.facts.get(row["contender"], {})
        row.update({name: facts.get(name) for name in ("segments", "outcome", "estimated_saved_bytes")})
        row.update({name: facts.get(name) for name in ("gradient_bytes", "estimated_activation_bytes")})
        row.update({name: facts.get(name) for name in ("warm_up_seconds", "warm_up_parts", "first_step_peak_bytes")})
        turns = [turn for turn in result.rows if turn["contender"] == row["contender"] and "peak_bytes" in turn]
        if turns:
            row["peak_bytes"] = max(turn["peak_bytes"] for turn in turns)
            row["resident_bytes"] = turns[-1]["resident_bytes"]
            row["above_bytes"] = row["peak_bytes"] - row["resident_bytes"]
        if "against" not in row:
            references[row["group"]] = row
    for row in rows:
        plain = references.get(row["group"], {})
        if "against" in row and row.get("above_bytes") and plain.get("above_bytes"):
            gradients = row["gradient_bytes"]
            row["memory_ratio"] = row["above_bytes"] / plain["above_bytes"]
            row["memory_ratio_without_gradients"] = (row["above_bytes"] - gradients) / (
                plain["above_bytes"] - gradients
            )
            row["meets"] = row["memory_ratio"] <= MEMORY_GOAL and row["time_ratio"]["estimate"] <= TIME_GOAL
    return rows


def line_of(row: dict[str, Any]) -> str:
    """A row for a terminal."""
    name = f"{row['contender']:28}"
    if "step_ms" not in row:
        reason = row.get("left_out", "no time")
        return f"{name} nothing measured: {reason[:80]} ... {reason[-180:]}"
    said = f"{name} {row['step_ms']:8.2f} ms, {row['rounds']} rounds, ready in {row['warm_up_seconds']:.0f} s"
    if "time_ratio" in row:
        ratio = row["time_ratio"]
        said += f", time x{ratio['estimate']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    if "peak_bytes" in row:
        parts = [row[f"{part}_bytes"] / GIB for part in ("peak", "resident", "above")]
        said += f", GiB {parts[0]:.2f} peak, {parts[1]:.2f} resident, {parts[2]:.2f} above"
    if "memory_ratio" in row:
        said += f", memory x{row['memory_ratio']:.3f} (without gradients x{row['memory_ratio_without_gradients']:.3f})"
        said += ": meets the goals" if row["meets"] else ": MISSES a goal"
    status = (row.get("outcome") or {}).get("status", "")
    return f"{said} {status} {row.get('segments') or ''}".rstrip()


def main(given: Optional[Sequence[str]] = None) -> int:
    """Measures, and prints the figures last; 1 where a process was left out."""
    arguments = parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="recompute_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        asked, lines = options(arguments), Lines(arguments.output)
        lines({"place": place(asked), "command": sys.argv, "sizes": TINY if arguments.tiny else FULL})
        waves = [list(wave(model, arguments)) for model in arguments.models]
        result, measured = take_waves(waves, asked, folder, lines)
        found = with_memory(summaries(measured, result, asked), result)
        for row in found:
            lines(row)
    for row in found:
        if row.get("outcome"):
            print(f"{row['contender']}: {row['outcome']['message']}")
    print("\n".join(line_of(row) for row in found))
    return int(bool(result.left_out or result.interrupted))


if __name__ == "__main__":
    sys.exit(main())
