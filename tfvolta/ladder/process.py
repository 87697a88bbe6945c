"""Runs a rung once, in a process of its own under a time limit; nothing of it is left but its output and evidence."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Mapping

from tfvolta.ladder.request import RungRequest
from tfvolta.ladder.rung import Rung
from tfvolta.ladder.rung_run import RungRun, run_of
from tfvolta.launch.guardian import Guardian
from tfvolta.launch.process import start_process

_WORKER = "tfvolta.ladder.worker"


class RungProcess:
    """Runs rungs, one after another.

    Attributes:
        request: The script; its rung is set for each run.
        limit_seconds: After so long a run is ended.
        folder: Takes what each run prints.
    """

    def __init__(self, request: RungRequest, limit_seconds: float, folder: Path):
        self.request = request
        self.limit_seconds = limit_seconds
        self.folder = folder

    def run(self, rung: Rung, repeat: int) -> RungRun:
        """Runs a rung; that always ends, whatever the script does.

        Args:
            rung: What to run.
            repeat: From 1; names the file with what is printed.
        """
        output, started = self.folder / f"{repeat}-{rung.name}.txt", time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tfvolta-rung-") as place:
            request = dataclasses.replace(
                self.request, rung=rung.name, sections=rung.sections, answer=str(Path(place) / "answer.json")
            )
            request.write(Path(place) / "request.json")
            guardian = Guardian(place)
            try:
                ended = self._run(Path(place) / "request.json", output, guardian)
            finally:
                guardian.close()
            answer = _answer(Path(request.answer), ended, output)
        return run_of(rung, repeat, time.monotonic() - started, answer)

    def _run(self, request: Path, output: Path, guardian: Guardian) -> str:
        """Why the process was ended or did not end well; empty where it did."""
        with output.open("wb") as file:
            command = [sys.executable, "-m", _WORKER, str(request)]
            child = start_process(command, guardian.mark.on(os.environ), output=file.fileno())
        guardian.add(child.pid)
        try:
            code = child.wait(self.limit_seconds)
        except subprocess.TimeoutExpired:
            return f"not done after {self.limit_seconds:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            guardian.remove(child.pid)
        return f"ended by signal {-code}" if code < 0 else f"exit code {code}" if code else ""


def _answer(path: Path, ended: str, output: Path) -> Mapping[str, Any]:
    """What the process answered; where it left nothing, how it ended and what it printed last."""
    try:
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        lines = [line for line in output.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        last = "" if ended.startswith("not done") else f": {lines[-1].strip()}" if lines else ": nothing was printed"
        return {"reason": f"{ended or 'no answer'}{last}"}
    return {**answer, "reason": answer.get("reason") or ended}
