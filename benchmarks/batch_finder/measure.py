"""Whether ``tfvolta batch-size`` finds the largest batch: its answer against separate runs of that batch and the next.

    python benchmarks/batch_finder/measure.py --limit-mb 8192 --output results.jsonl

All of them train the same script under the same limit of GPU memory. One JSON line for the search, one for each
neighbour, and a last one that compares.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = pathlib.Path(__file__).with_name("train.py")
STEP = 8  # rows between two sizes


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit-mb", type=int, default=8192, help="of GPU memory for each process; 0 for none")
    parser.add_argument("--start", type=int, default=64)
    parser.add_argument("--most", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=100.0, help="no trial of the search begins after so long")
    parser.add_argument("--trial-seconds", type=float, default=90.0)
    parser.add_argument("--above", type=int, default=2, help="sizes above the largest that are tried")
    parser.add_argument("--model", default="ResNet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--output", help="file that lines are added to")
    return parser.parse_args()


def options_of(arguments: argparse.Namespace) -> list[str]:
    """Options of tfvolta that the search and the runs have in common."""
    limit = arguments.limit_mb or "null"
    settings = ("mixed_precision.policy=mixed_float16", "xla.jit=off", "devices.memory_growth=null")
    settings += (f"devices.memory_limit_mb={limit}",)
    return ["--no-strict", *(part for setting in settings for part in ("--set", setting))]


def searched(arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """What the command finds."""
    command = [sys.executable, "-m", "tfvolta", "batch-size", "--directory", folder, *options_of(arguments)]
    command += ["--start", str(arguments.start), "--steps", str(arguments.steps), "--json"]
    command += ["--trial-seconds", f"{arguments.trial_seconds:g}", "--seconds", f"{arguments.seconds:g}"]
    command += ["--most", str(arguments.most)] if arguments.most else []
    command += [str(TRAIN), "--model", arguments.model, "--pixels", str(arguments.pixels)]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    seconds = round(time.perf_counter() - began, 1)
    start = done.stdout.find("{")
    if start < 0:
        return {"what": "search", "failed": done.stderr[-800:], "seconds": seconds}
    return {"what": "search", "limit_mb": arguments.limit_mb, "seconds": seconds, **json.loads(done.stdout[start:])}


def trained(batch: int, arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """One run of the script with a batch of its own; how it ended."""
    command = [sys.executable, "-m", "tfvolta", "run", "--quiet", "--directory", folder, *options_of(arguments)]
    command += ["--set", "memory.on_oom=report", str(TRAIN), "--model", arguments.model]
    command += ["--pixels", str(arguments.pixels), "--batch", str(batch), "--steps", str(arguments.steps + 2)]
    line: dict[str, Any] = {"what": "run", "batch": batch}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=arguments.trial_seconds
        )
    except subprocess.TimeoutExpired:
        return {**line, "fits": None, "why": f"not done after {arguments.trial_seconds:g} s"}
    text = done.stdout + done.stderr
    peak = [int(row.split()[1]) for row in done.stdout.splitlines() if row.startswith("peak_bytes ")]
    out = any(word in text for word in ("ResourceExhausted", "OOM when allocating", "out of memory"))
    if done.returncode:
        line["why"] = "out of memory" if out else text.strip()[-400:]
    return {**line, "fits": done.returncode == 0, "out_of_memory": out, "peak_bytes": peak[-1] if peak else None}


def environment() -> dict[str, str]:
    """A limited device takes its whole memory at once, as it does for a user; growth would scatter it."""
    kept = {name: value for name, value in os.environ.items() if name != "TF_FORCE_GPU_ALLOW_GROWTH"}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"}


def compared(largest: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How many steps lie between the answer and the largest size that a run of its own fits."""
    fitting = [run["batch"] for run in runs if run["fits"]]
    best = max(fitting, default=0)
    open_end = bool(runs) and runs[-1]["fits"] is not False
    return {
        "what": "verdict",
        "found": largest,
        "largest_that_fits": best,
        "steps_away": abs(best - largest) / STEP,
        "more_may_fit": open_end,
        "within_one_step": abs(best - largest) <= STEP and not open_end,
    }


def main() -> None:
    """Searches, tries the neighbours side by side, and compares."""
    arguments = parse_arguments()
    lines = []

    def tell(line: dict[str, Any]) -> None:
        lines.append(json.dumps(line))
        if arguments.output:
            with open(arguments.output, "a", encoding="utf-8") as file:
                file.write(lines[-1] + "\n")
        print(lines[-1], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        found = searched(arguments, folder)
        tell(found)
        largest = found.get("largest")
        if largest is None:
            raise SystemExit("no batch was found")
        sizes = [largest + STEP * number for number in range(-1, arguments.above + 1) if largest + STEP * number > 0]
        with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
            runs = list(pool.map(lambda batch: trained(batch, arguments, f"{folder}/{batch}"), sizes))
    for run in runs:
        tell(run)
    tell(compared(largest, runs))


if __name__ == "__main__":
    main()
