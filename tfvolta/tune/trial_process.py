"""Runs one trial in a process of its own, under a time limit and a memory limit; nothing of it is left afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional

from tfvolta.launch.guardian import Guardian
from tfvolta.launch.process import start_process
from tfvolta.memory.exhaustion import is_exhaustion, size_text
from tfvolta.tune.trial import Ending, Trained, Trial
from tfvolta.tune.trial_request import TrialRequest, read_answer

_LOOK_SECONDS = 0.02
_LAST_BYTES = 20_000
_WORKER = "tfvolta.tune.trial_worker"


class TrialProcess:
    """Runs trials, one after another.

    Attributes:
        limit_seconds: After so long a trial is ended.
        limit_bytes: With so much memory of the host in use by a trial's processes it is ended; None for no limit.
    """

    def __init__(self, limit_seconds: float, limit_bytes: Optional[int] = None):
        self.limit_seconds = limit_seconds
        self.limit_bytes = limit_bytes

    def run(self, request: TrialRequest) -> Trial:
        """Runs one trial; it always ends, whatever the script does.

        Args:
            request: What to try; its ``answer`` is set here.
        """
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tfvolta-trial-") as folder:
            guardian = Guardian(folder)
            try:
                return self._run(request, Path(folder), guardian, started)
            finally:
                guardian.close()

    def _run(self, request: TrialRequest, folder: Path, guardian: Guardian, started: float) -> Trial:
        path, output = folder / "request.json", folder / "output.txt"
        request = dataclasses.replace(request, answer=str(folder / "answer.json"))
        request.write(path)
        with output.open("wb") as file:
            child = start_process(
                [sys.executable, "-m", _WORKER, str(path)], guardian.mark.on(os.environ), output=file.fileno()
            )
        guardian.add(child.pid)
        try:
            ended, peak = self._watch(child, started)
        finally:
            _kill(child)
            guardian.remove(child.pid)
        seconds = time.monotonic() - started
        if ended is not None:
            return Trial(request.batch, *ended, seconds=seconds, peak_bytes={"host": peak})
        return _answered(request, child.returncode, _last(output), (seconds, peak))

    def _watch(self, child: subprocess.Popen[bytes], started: float) -> tuple[Optional[tuple[Ending, str]], int]:
        """Waits for the end of a process or of its allowance; its peak of memory in bytes."""
        peak = 0
        while child.poll() is None:
            peak = max(peak, group_bytes(child.pid))
            if self.limit_bytes is not None and peak > self.limit_bytes:
                text = f"the process used {size_text(peak)} of the host's memory; the limit is "
                return (Ending.OUT_OF_MEMORY, text + size_text(self.limit_bytes)), peak
            if time.monotonic() - started > self.limit_seconds:
                return (Ending.TIMEOUT, f"not done after {self.limit_seconds:g} s"), peak
            time.sleep(_LOOK_SECONDS)
        return None, peak


def group_bytes(group: int) -> int:
    """Memory in use by the processes of a group. Source: proc(5), /proc/PID/stat and /proc/PID/statm."""
    total, page = 0, os.sysconf("SC_PAGE_SIZE")
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                if int(stat[2]) == group:
                    total += int(Path(f"/proc/{entry}/statm").read_bytes().split()[1]) * page
    return total


def available_bytes() -> Optional[int]:
    """Memory of the host that processes can still take; None where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started, and waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _answered(request: TrialRequest, returncode: int, lines: str, measured: tuple[float, int]) -> Trial:
    """A trial whose process has ended by itself."""
    seconds, peak = measured
    answer = read_answer(request.answer)
    if answer is None:
        return Trial(request.batch, *_unanswered(returncode, lines), seconds=seconds, peak_bytes={"host": peak})
    return Trial(
        request.batch,
        Ending(answer["ending"]),
        answer.get("reason", ""),
        answer.get("steps", 0),
        answer.get("examples_per_second"),
        seconds,
        {**answer.get("peak_bytes", {}), "host": peak},
        Trained.of(answer.get("trained")),
        answer.get("rows"),
    )


def _unanswered(returncode: int, lines: str) -> tuple[Ending, str]:
    """How a process ended that wrote no answer."""
    last = next((line.strip() for line in reversed(lines.splitlines()) if line.strip()), "nothing was printed")
    if returncode == -signal.SIGKILL:
        return Ending.OUT_OF_MEMORY, "killed by SIGKILL, as the kernel does when memory runs out"
    if is_exhaustion("", lines):
        said = next(line.strip() for line in lines.splitlines() if is_exhaustion("", line))
        return Ending.OUT_OF_MEMORY, said
    how = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
    return Ending.CRASH, f"{how}: {last}"


def _last(output: Path) -> str:
    """The last part of what a process printed."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _LAST_BYTES))
        return file.read().decode("utf-8", "replace")
