"""Foretold and measured memory of the running step, many small processes at once; see README.md next to it.

Each point is one process that trains a few steps of ``train.py`` with ``tfvolta run``. What is compared stands in its
evidence (``step_memory``), so this measures what a user gets. Memory counts for each process alone, so that several
may share the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Optional

ROOT = pathlib.Path(__file__).parents[2]
BATCHES = {"bert_large": (64, 32, 16), "resnet50": (256, 128, 64), "lstm": (256, 128, 64)}
POLICIES = ("float32", "mixed_float16")
GIB = 2**30
_EXTENDED = re.compile(r"Extending allocation by .* for GPU_0_bfc")
_TOTAL = re.compile(r"Total allocated bytes: ([\d.]+)\s*([KMGT]?i?B)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="folder for points.jsonl, or estimates.jsonl")
    parser.add_argument("--work", help="folder for logs and evidence; a temporary one if left out")
    parser.add_argument("--estimates", help="estimates.jsonl of an earlier call with --estimate, to compare with")
    parser.add_argument("--jobs", type=int, default=8, help="processes at once (default: 8)")
    parser.add_argument("--seconds", type=float, default=290.0, help="everything ends after this (default: 290)")
    parser.add_argument("--time-limit", type=float, default=230.0, help="seconds for each process (default: 230)")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--small", action="store_true", help="small models, to try this out on a CPU")
    parser.add_argument("--estimate", action="store_true", help="only estimate each point beforehand, on the CPU")
    parser.add_argument("--only", default="", help="points whose name contains this")
    return parser.parse_args()


def points() -> list[dict[str, Any]]:
    """All of them, those that take longest first."""
    found = [
        {"model": model, "policy": policy, "xla": "off" if model == "lstm" else "on", "batch": batch}
        for model, batches in BATCHES.items()
        for batch in batches
        for policy in POLICIES
    ]
    for batch, policy, limit in ((64, "float32", None), (64, "float32", 128), (64, "mixed_float16", None)):
        found.append({"model": "resnet50", "policy": policy, "xla": "off", "batch": batch, "workspace_limit_mb": limit})
    return found


def name_of(point: dict[str, Any]) -> str:
    """A name for files."""
    limit = f"-limit{point['workspace_limit_mb']}" if point.get("workspace_limit_mb") else ""
    return f"{point['model']}-{point['policy']}-xla_{point['xla']}-{point['batch']}{limit}"


def command_of(point: dict[str, Any], estimate: bool) -> list[str]:
    """The command that measures or estimates a point, but for its script."""
    settings = [f"mixed_precision.policy={point['policy']}", "devices.memory_growth=true"]
    settings.append(f"xla.jit={'model' if point['xla'] == 'on' else 'off'}")
    if point.get("workspace_limit_mb"):
        settings.append(f"cudnn.workspace_limit_mb={point['workspace_limit_mb']}")
    sets = [word for setting in settings for word in ("--set", setting)]
    asked = ["estimate", "memory", "--json", "--xla", point["xla"]] if estimate else ["run", "--quiet"]
    return [sys.executable, "-m", "tfvolta", *asked, "--no-strict", *sets]


class Running:
    """A point that is being measured or estimated.

    Attributes:
        point: Which.
        log: What its process has written.
        runs: Folder of its evidence.
        answer: What it has printed, where that is apart.
    """

    def __init__(self, point: dict[str, Any], arguments: argparse.Namespace, work: pathlib.Path):
        self.point = point
        self.runs = work / f"runs-{name_of(point)}"
        self.log = work / f"{name_of(point)}.log"
        self.answer = work / f"{name_of(point)}.json"
        self.started = time.monotonic()
        self._limit = arguments.time_limit
        script = [str(pathlib.Path(__file__).parent / "train.py"), point["model"], "--batch", str(point["batch"])]
        script += ["--steps", str(arguments.steps), "--measure", *(["--small"] if arguments.small else [])]
        words = [*command_of(point, arguments.estimate), "--directory", str(self.runs), *script]
        with self.log.open("wb") as log, self.answer.open("wb") as answer:
            out = answer if arguments.estimate else log
            self.process = subprocess.Popen(words, cwd=ROOT, env=_environment(), stdout=out, stderr=log)

    def ended(self, at_once: bool) -> Optional[str]:
        """How it ended; None while it runs. One that is over its time is ended."""
        code = self.process.poll()
        if code is not None:
            return "" if code == 0 else f"exit code {code}"
        if at_once or time.monotonic() - self.started > self._limit:
            self.process.kill()
            self.process.wait()
            return f"still at work after {time.monotonic() - self.started:.0f} s"
        return None


def _environment() -> dict[str, str]:
    """Of each process: the allocator writes what it takes of the card to the log."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    wanted = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_VMODULE": "bfc_allocator=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    return {**os.environ, **wanted, "PYTHONPATH": path}


def reserved_bytes(log: str) -> Optional[int]:
    """What the allocator of the first GPU held of the card in the end; None where the log does not say."""
    held, of_gpu = None, False
    for line in log.splitlines():
        total = _TOTAL.search(line)
        if _EXTENDED.search(line):
            of_gpu = True
        elif total and of_gpu:
            held, of_gpu = int(float(total[1]) * _UNITS.get(total[2], 1)), False
    return held


def estimate_of(running: Running, ending: str) -> dict[str, Any]:
    """A point's line of the estimates."""
    line: dict[str, Any] = {**running.point, "seconds": round(time.monotonic() - running.started, 1)}
    try:
        found = json.loads(running.answer.read_text(encoding="utf-8"))
    except ValueError:
        return {**line, "error": f"{ending}: {running.log.read_text(encoding='utf-8', errors='replace')[-400:]}"}
    sizes = {name: value for name, value in found["estimate"].items() if isinstance(value, int)}
    return {**line, "estimate_gib": round(sizes["peak"] / GIB, 3), "parts": sizes, "stack": found["stack"]}


def line_of(running: Running, ending: str, estimates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A point's line of the result."""
    line: dict[str, Any] = {**running.point, "seconds": round(time.monotonic() - running.started, 1)}
    log = running.log.read_text(encoding="utf-8", errors="replace")
    for found in sorted(running.runs.rglob("evidence.json")):
        evidence = json.loads(found.read_text(encoding="utf-8"))
        measured = evidence.get("measurements", {})
        line.update((measured.get("step_memory") or {}).get("figures", [{}])[0])
        line["why"] = (measured.get("step_memory") or {}).get("peak")
        line["fragmentation"] = (measured.get("step_memory") or {}).get("fragmentation")
        line["stack"] = evidence.get("stack")
    for text in log.splitlines():
        if text.startswith('{"peak_gib"'):
            line.update(json.loads(text))
    line["reserved_bytes"] = reserved_bytes(log)
    estimate = estimates.get(name_of(running.point))
    if estimate is not None and line.get("steady_peak_bytes"):
        line["estimate_gib"] = estimate["estimate_gib"]
        for which in ("steady_peak_bytes", "first_step_peak_bytes"):
            error = 100 * (estimate["estimate_gib"] * GIB / line[which] - 1)
            line[f"estimate_error_percent_of_{which.rsplit('_', 2)[0]}"] = round(error, 1)
    if ending:
        line["error"] = f"{ending}: {log[-400:]}"
    return line


def measured(arguments: argparse.Namespace, work: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Runs all points; a line for each as soon as it has ended."""
    began = time.monotonic()
    estimates = read_estimates(arguments.estimates)
    waiting = [point for point in points() if arguments.only in name_of(point)]
    running: list[Running] = []
    while waiting or running:
        over = time.monotonic() - began > arguments.seconds
        while waiting and len(running) < arguments.jobs and not over:
            running.append(Running(waiting.pop(0), arguments, work))
        for each in list(running):
            ending = each.ended(over)
            if ending is not None:
                running.remove(each)
                yield estimate_of(each, ending) if arguments.estimate else line_of(each, ending, estimates)
        if over:
            yield from ({**point, "error": f"not begun within {arguments.seconds:g} s"} for point in waiting)
            return
        time.sleep(0.2)


def read_estimates(path: Optional[str]) -> dict[str, dict[str, Any]]:
    """Estimates by the names of their points."""
    if path is None:
        return {}
    lines = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    return {name_of(line): line for line in lines if "estimate_gib" in line}


def shown(line: dict[str, Any]) -> str:
    """A line for a person."""
    if "parts" in line:
        return f"{name_of(line):44} estimate {line['estimate_gib']} GiB, {line['seconds']} s"
    if "error" in line and not line.get("steady_peak_bytes"):
        return f"{name_of(line):44} {str(line['error'])[:160]}"
    gib = {key: line[key] / GIB for key in ("predicted_peak_bytes", "steady_peak_bytes") if line.get(key)}
    first = (line.get("first_step_peak_bytes") or 0) / GIB
    return (
        f"{name_of(line):44} predicted {gib.get('predicted_peak_bytes', 0):7.3f} steady "
        f"{gib.get('steady_peak_bytes', 0):7.3f} first {first:7.3f} GiB, error {line.get('error_percent')} % / "
        f"{line.get('first_step_error_percent')} %, estimate {line.get('estimate_gib')} GiB, reserved "
        f"{(line.get('reserved_bytes') or 0) / GIB:.2f}, look {line.get('look_seconds')} s of {line['seconds']} s"
    )


def main() -> None:
    """Measures, and prints the lines that matter last."""
    arguments = parse_arguments()
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(arguments.work or tempfile.mkdtemp(prefix="memory-points-"))
    work.mkdir(parents=True, exist_ok=True)
    lines = []
    with (out / ("estimates.jsonl" if arguments.estimate else "points.jsonl")).open("a", encoding="utf-8") as file:
        for line in measured(arguments, work):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(name_of(line), "ended", line.get("seconds"), flush=True)
    print(f"\nlogs: {work}")
    for line in sorted(lines, key=name_of):
        print(shown(line), flush=True)


if __name__ == "__main__":
    main()
