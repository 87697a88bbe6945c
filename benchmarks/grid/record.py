#!/usr/bin/env python3
"""Records grids of settings, every combination measured, on which a search can be replayed (tfvolta.tune.replay).

    python3 benchmarks/grid/record.py --seconds 500                       # goes on where it ended, until time is up
    python3 benchmarks/grid/record.py --only lstm/keras3 --seconds 500
    python3 benchmarks/grid/record.py --only small/.* --cpu               # the small grid, on a CPU
    python3 benchmarks/grid/record.py --list                              # grids, and how many points each still lacks

Points are measured in waves: processes that compile at the same time and then take turns (benchmarks/turns.py). The
baseline is in every wave, and each wave's times are divided by how much slower its baseline was than the first one's,
so that waves of several hours fit together. What the plan refuses is recorded without a process.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
from typing import Any, Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.grid.grids import GRIDS, Plan  # noqa: E402
from benchmarks.turns import Contender, Result, take_turns  # noqa: E402
from benchmarks.turns_options import Options  # noqa: E402
from tfvolta.facts.probe import probe  # noqa: E402
from tfvolta.tune.grid import Grid, GridPoint, read_grid, write_grid  # noqa: E402
from tfvolta.tune.plan_rules import PlanRules  # noqa: E402
from tfvolta.tune.speed_process import Limits, SpeedProcess  # noqa: E402
from tfvolta.tune.speed_request import SpeedRequest  # noqa: E402

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
SCRIPT = ROOT / "benchmarks" / "peers" / "keras_script.py"
BASELINE = "as it is"
Words = tuple[str, ...]


def environ(plan: Plan, cpu: bool) -> dict[str, str]:
    """The environment of the processes of a grid."""
    found = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    found.pop("TF_USE_LEGACY_KERAS", None)
    if plan.stack == "tf_keras":
        found["TF_USE_LEGACY_KERAS"] = "1"
    return {**found, "CUDA_VISIBLE_DEVICES": ""} if cpu else found


def script_arguments(plan: Plan, steps: int) -> list[str]:
    """The command line of the script."""
    tiny = ["--tiny"] if plan.tiny else []
    batch = ["--batch", str(plan.batch)] if plan.batch else []
    return [plan.model, *tiny, *batch, "--steps", str(steps)]


def contender(plan: Plan, words: Words, arguments: argparse.Namespace, folder: pathlib.Path) -> Contender:
    """The process of a point."""
    overrides = [part for word in (*plan.overrides, *words) for part in ("--set", word)]
    config = ["--config", "tfvolta:default", "--directory", str(folder / "runs"), *overrides]
    script = [str(SCRIPT), *script_arguments(plan, arguments.steps)]
    command = [sys.executable, "-m", "tfvolta", "run", "--quiet", *config, *script]
    return Contender(" ".join(words) or BASELINE, plan.name, command, environ(plan, arguments.cpu), not words)


def fresh(plan: Plan, arguments: argparse.Namespace) -> Grid:
    """A grid without points: its machine, and what its model is like."""
    place = environ(plan, arguments.cpu)
    facts = probe(place, stack=plan.stack)
    facts = facts.model_copy(update={"gpus": (), "links": ()}) if arguments.cpu else facts
    command = ("python3", "benchmarks/grid/record.py", *sys.argv[1:])
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    traits = {**traits_of(plan, place), "compiled": False, "half": False}
    return Grid(
        model=plan.name.partition("/")[0],
        created=created,
        facts=facts,
        command=command,
        overrides=plan.overrides,
        traits=traits,
        axes=plan.axes,
        notes=tuple(arguments.note),
    )


def traits_of(plan: Plan, place: dict[str, str]) -> dict[str, Any]:
    """Layers of the model, from some steps of its small form on the CPU; their kinds are those of the whole one."""
    hidden = {**place, "CUDA_VISIBLE_DEVICES": ""}
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(hidden)
    try:
        words = ("mixed_precision.policy=float32", "xla.jit=off", "kernels=null", "run.strict=false")
        request = SpeedRequest(None, words, str(SCRIPT), (plan.model, "--tiny"), blocks=1, describe=True)
        trial = SpeedProcess(Limits(trial_seconds=180), lambda: False).run(request)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    if not trial.traits:
        raise SystemExit(f"{plan.name}: the model cannot be looked at: {trial.ending}: {trial.reason}")
    return {"kinds": trial.traits["kinds"], "batch": plan.rows, "batches_per_call": 1}


def refused(plan: Plan, grid: Grid) -> Grid:
    """The grid with the points that the plan refuses, which no search would try."""
    rules = PlanRules(None, plan.overrides, grid.facts, {}, plan.layers)
    for words in grid.missing():
        ruling = rules.ruling(words)
        if ruling is not None:
            grid = grid.with_point(GridPoint(words=words, ending="refused", reason=f"{ruling.kind}: {ruling.rule}"))
    return grid


def wave(plan: Plan, grid: Grid, arguments: argparse.Namespace, until: float) -> Grid:
    """Measures as many points as run side by side, and the baseline with them."""
    chosen = [words for words in grid.missing() if words][: arguments.wave - 1]
    with tempfile.TemporaryDirectory(prefix="grid_") as made:
        folder = pathlib.Path(made)
        contenders = [contender(plan, words, arguments, folder) for words in ((), *chosen)]
        options = Options(
            rounds=arguments.rounds,
            discard=1,
            ready_seconds=arguments.ready_seconds,
            limit_seconds=max(1.0, until - time.monotonic()),
        )
        began, ready = time.monotonic(), {}

        def say(row: dict[str, Any]) -> None:
            if "ready" in row:
                ready[row["ready"]] = time.monotonic() - began
            print({key: value for key, value in row.items() if key != "versions"}, flush=True)

        result = take_turns(contenders, options, folder, say)
    points = list(points_of(((), *chosen), result, ready, arguments))
    base = next((point for point in points if not point.words and point.ending == "measured"), None)
    if base is None:
        print(f"{plan.name}: the baseline was not measured in this wave, so nothing of it is kept", flush=True)
        return grid
    known = grid.point(())
    slower = typical(base) / typical(known) if known is not None and known.blocks else 1.0
    for point in points:
        if point.words or known is None:
            grid = grid.with_point(scaled(point, slower))
    return grid


def points_of(
    combinations: Sequence[Words], result: Result, ready: dict[str, float], arguments: argparse.Namespace
) -> Iterator[GridPoint]:
    """What a wave says of each combination; one that was interrupted is left for another."""
    for words in combinations:
        name = " ".join(words) or BASELINE
        rows = [row for row in result.rows if row["contender"] == name and row["round"] >= 1]
        if name in result.left_out:
            ending, reason = ending_of(result.left_out[name])
            if ending != "interrupted":
                yield GridPoint(words=words, ending=ending, reason=reason)
        elif len(rows) >= arguments.least_rounds:
            first = result.facts[name].get("first_epoch_seconds", 0.0)
            yield GridPoint(
                words=words,
                ending="measured",
                blocks=tuple((row["seconds"], row["steps"], row["examples"]) for row in rows),
                startup_seconds=round(max(0.0, ready.get(name, 0.0) - first), 2),
                first_step_seconds=first,
            )


def ending_of(reason: str) -> tuple[Any, str]:
    """What a reason for leaving a process out means for its point."""
    text = reason.lower()
    line = " ".join(reason.split())[:400]
    if "not ready in time" in text:
        return "compile timeout", line
    if "resource_exhausted" in text or "out of memory" in text or "oom" in text:
        return "out of memory", line
    if "this config cannot be applied here" in text:
        return "refused", line
    return "crash", line


def typical(point: GridPoint) -> float:
    """Seconds of a batch."""
    return statistics.median(seconds / batches for seconds, batches, _ in point.blocks)


def scaled(point: GridPoint, slower: float) -> GridPoint:
    """A point with its times divided by a factor."""
    blocks = tuple((seconds / slower, batches, examples) for seconds, batches, examples in point.blocks)
    note = f"times divided by {slower:.3f}, the baseline's of this wave over the first one's" if slower != 1.0 else ""
    return point.model_copy(update={"blocks": blocks, "reason": point.reason or note})


def record(plan: Plan, arguments: argparse.Namespace, until: float) -> None:
    """Goes on with a grid until it is whole or the time is up."""
    path = arguments.results / f"{plan.name.replace('/', '_')}.json"
    grid = read_grid(path) if path.exists() else fresh(plan, arguments)
    grid = refused(plan, grid)
    while grid.missing() and time.monotonic() + arguments.least_seconds < until:
        before = len(grid.points)
        grid = wave(plan, grid, arguments, until)
        write_grid(grid, path)
        print(f"{plan.name}: {len(grid.points)} of {grid.size} points", flush=True)
        if len(grid.points) == before:
            return
    write_grid(grid, path)


def main(given: Optional[Sequence[str]] = None) -> int:
    """Records grids; 1 where points are missing at the end."""
    arguments = parser().parse_args(given)
    until = time.monotonic() + arguments.seconds
    arguments.results.mkdir(parents=True, exist_ok=True)
    missing = 0
    for plan in (plan for plan in GRIDS if re.fullmatch(arguments.only, plan.name)):
        path = arguments.results / f"{plan.name.replace('/', '_')}.json"
        if not arguments.list and time.monotonic() + arguments.least_seconds < until:
            record(plan, arguments, until)
        left = len(read_grid(path).missing()) if path.exists() else plan.size
        missing += left
        print(f"{plan.name}: {left} of {plan.size} points are missing")
    return int(missing > 0)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--only", default="(resnet50|bert_large|lstm)/.*", help="pattern of whole names")
    found.add_argument("--list", action="store_true", help="say what is missing, and measure nothing")
    found.add_argument("--cpu", action="store_true", help="hide GPUs")
    found.add_argument("--seconds", type=float, default=540.0, help="no wave begins or goes on after so long")
    found.add_argument("--least-seconds", type=float, default=60.0, help="a wave needs so much time to begin")
    found.add_argument("--wave", type=int, default=6, help="processes side by side, the baseline among them")
    found.add_argument("--rounds", type=int, default=8, help="turns of each, of which the first does not count")
    found.add_argument("--least-rounds", type=int, default=3, help="turns without which a point is measured again")
    found.add_argument("--steps", type=int, default=20, help="steps of a turn")
    found.add_argument("--ready-seconds", type=float, default=240.0, help="limit for compiling")
    found.add_argument("--note", action="append", default=[], help="what a reader should know of the machine's state")
    found.add_argument("--results", type=pathlib.Path, default=RESULTS, help="folder of the grids")
    return found


if __name__ == "__main__":
    sys.exit(main())
