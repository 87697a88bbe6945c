"""Estimated, refined and measured memory of three models; see README.md next to it.

Each line of the result is one case: what ``tfvolta estimate memory`` says before training, what XLA's own analysis
says, and the peak that TensorFlow's allocator counted while training. Estimate and training are processes of their own.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Optional

ROOT = pathlib.Path(__file__).parents[2]
BATCHES = {"resnet50": (64, 128, 256), "bert_large": (16, 32, 64), "lstm": (64, 128, 256)}
POLICIES = ("float32", "mixed_float16")
GIB = 2**30


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="file that lines are added to")
    parser.add_argument("--models", default=",".join(BATCHES), help="comma-separated")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--xla", default="off,on", help="off, on or both; the LSTM is measured without only")
    parser.add_argument("--batches", help="comma-separated, instead of three for each model")
    parser.add_argument("--time-limit", type=float, default=420.0, help="seconds for each process")
    parser.add_argument("--only-estimate", action="store_true", help="train nothing: works without a GPU")
    return parser.parse_args()


def cases(arguments: argparse.Namespace) -> Any:
    """Every case that is asked for: model, policy, XLA and batch."""
    for model in arguments.models.split(","):
        batches = [int(batch) for batch in arguments.batches.split(",")] if arguments.batches else BATCHES[model]
        for policy, xla, batch in itertools.product(arguments.policies.split(","), arguments.xla.split(","), batches):
            if not (model == "lstm" and xla == "on"):  # cuDNN's LSTM is not compiled by XLA
                yield {"model": model, "policy": policy, "xla": xla, "batch": batch}


def call(command: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    """Runs a process with a time limit; its last line of JSON, or why there is none."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=seconds, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"error": f"still at work after {seconds:g} s"}
    start = done.stdout.find("{")
    try:
        return dict(json.loads(done.stdout[start:]))
    except ValueError:
        return {"error": f"exit code {done.returncode}: {done.stderr[-600:]}"}


def estimated(case: dict[str, Any], seconds: float, refine: bool) -> dict[str, Any]:
    """What ``tfvolta estimate memory`` says; XLA's own figure is of the device that is there."""
    with tempfile.TemporaryDirectory() as runs:
        script = [str(pathlib.Path(__file__).parent / "train.py"), case["model"], "--batch", str(case["batch"])]
        options = ["--precision", case["policy"], "--xla", case["xla"], "--time-limit", f"{seconds:g}", "--json"]
        command = [sys.executable, "-m", "tfvolta", "estimate", "memory", "--directory", runs, *options]
        command += ["--set", jit_of(case)]
        return call([*command, *(["--refine"] if refine else []), *script], seconds + 30, dict(os.environ))


def measured(case: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The peak of a training of a few steps under the same config."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "tfvolta", "run", "--quiet", "--directory", runs, "--set", jit_of(case)]
        command += ["--set", f"mixed_precision.policy={case['policy']}", "--no-strict"]
        script = [str(pathlib.Path(__file__).parent / "train.py"), case["model"]]
        return call([*command, *script, "--batch", str(case["batch"]), "--measure"], seconds, dict(os.environ))


def jit_of(case: dict[str, Any]) -> str:
    """The override that has the step compiled or not."""
    return f"xla.jit={'model' if case['xla'] == 'on' else 'off'}"


def compared(case: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """One line of the result."""
    refine = case["xla"] == "on" and not arguments.only_estimate
    estimate = estimated(case, arguments.time_limit, refine)
    line: dict[str, Any] = {**case, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    if "error" in estimate:
        return {**line, "error": f"estimate: {estimate['error']}"}
    line["estimate_gib"] = round(estimate["estimate"]["peak"] / GIB, 3)
    line["parts_mib"] = {
        name: round(size / 2**20, 1) for name, size in estimate["estimate"].items() if isinstance(size, int)
    }
    line["stack"] = estimate["stack"]
    line["estimate_seconds"] = estimate["seconds"]
    refined: Optional[dict[str, Any]] = estimate.get("refined")
    if refined is not None:
        line["refined"] = refined
        line["refined_gib"] = round(refined["total_bytes"] / GIB, 3) if "total_bytes" in refined else None
    if not arguments.only_estimate:
        peak = measured(case, arguments.time_limit)
        line.update(peak)
        for name in ("estimate", "refined"):
            if peak.get("peak_gib") and line.get(f"{name}_gib"):
                line[f"{name}_error_percent"] = round(100 * (line[f"{name}_gib"] / peak["peak_gib"] - 1), 1)
    return line


def main() -> None:
    """Measures every case and adds a line for each as soon as it is known."""
    arguments = parse_arguments()
    for case in cases(arguments):
        line = json.dumps(compared(case, arguments))
        print(line, flush=True)
        with open(arguments.out, "a", encoding="utf-8") as out:
            out.write(line + "\n")


if __name__ == "__main__":
    main()
