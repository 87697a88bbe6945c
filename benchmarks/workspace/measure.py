"""Memory against speed over limits of cuDNN's scratch memory, in turns on one GPU.

    python benchmarks/workspace/measure.py --output results.jsonl
    python benchmarks/workspace/measure.py --limits 64 1024 default --policies float32 --batch 64

Convolution kernels read the limit once a process, so that each limit is a process; those of one policy are up at the
same time and take turns. A limit that runs out of memory is a line, too. XLA is off: it has a search of its own, which
does not read this limit.
"""

from __future__ import annotations

import argparse
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
GIB = 2**30


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--model", default="ResNet50", help="a class of keras.applications")
    found.add_argument("--batch", type=int, default=128)
    found.add_argument("--pixels", type=int, default=224, help="of an image's side")
    found.add_argument("--policies", nargs="+", default=["mixed_float16", "float32"])
    found.add_argument("--limits", nargs="+", default=["64", "256", "1024", "4096", "default"], help="MiB, or default")
    found.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    found.add_argument("--gib", type=float, default=25.0, help="bound on the memory of a process; 0 for none")
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--logs", type=pathlib.Path, help="folder for the logs of the processes")
    add_arguments(found, rounds=4, discard=0, limit_seconds=140.0, ready_seconds=55.0, turn_seconds=20.0)
    return found


def wave(policy: str, arguments: argparse.Namespace) -> Iterator[Contender]:
    """Every limit under one policy; the reference is TensorFlow's own, or the last one."""
    sizes = [arguments.model, str(arguments.batch), str(arguments.pixels), policy]
    for limit in arguments.limits:
        command = [sys.executable, str(WORKER), *sizes, limit, str(arguments.seconds), str(arguments.gib)]
        name = f"{policy}-{limit}"
        yield Contender(name, policy, command, environ(), limit == arguments.limits[-1])


def with_memory(rows: list[dict[str, Any]], result: Result) -> list[dict[str, Any]]:
    """Summaries with the allocator's peaks: of any turn, and of the first step, in which kernels are searched for."""
    for row in rows:
        facts = result.facts.get(row["contender"], {})
        turns = [turn for turn in result.rows if turn["contender"] == row["contender"] and "peak_bytes" in turn]
        row["first_step_peak_bytes"] = facts.get("first_step_peak_bytes")
        row["warm_up_seconds"] = facts.get("warm_up_seconds")
        if turns:
            row["peak_bytes"] = max(turn["peak_bytes"] for turn in turns)
            row["resident_bytes"] = turns[-1]["resident_bytes"]
        reason = row.get("left_out", "")
        row["out_of_memory"] = any(word in reason for word in ("OOM", "out of memory", "ResourceExhausted"))
    return rows


def line_of(row: dict[str, Any]) -> str:
    """A row for a terminal."""
    name = f"{row['contender']:24}"
    if "step_ms" not in row:
        reason = row.get("left_out", "no time")
        return f"{name} nothing measured: {reason[:80]} ... {reason[-180:]}"
    said = f"{name} {row['step_ms']:8.2f} ms, {row['rounds']} rounds, ready in {row['warm_up_seconds']:.0f} s"
    if "time_ratio" in row:
        ratio = row["time_ratio"]
        said += f", time x{ratio['estimate']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    if "peak_bytes" in row:
        said += f", GiB {row['peak_bytes'] / GIB:.2f} peak, {row['first_step_peak_bytes'] / GIB:.2f} in the first step"
    return said


def main(given: Optional[Sequence[str]] = None) -> int:
    """Measures, and prints the figures last; 1 where a process was left out."""
    arguments = parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="workspace_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        asked, lines = options(arguments), Lines(arguments.output)
        lines({"place": place(asked), "command": sys.argv, "model": arguments.model, "batch": arguments.batch})
        waves = [list(wave(policy, arguments)) for policy in arguments.policies]
        result, measured = take_waves(waves, asked, folder, lines)
        found = with_memory(summaries(measured, result, asked), result)
        for row in found:
            lines(row)
    print("\n".join(line_of(row) for row in found))
    return int(bool(result.left_out or result.interrupted))


if __name__ == "__main__":
    sys.exit(main())
