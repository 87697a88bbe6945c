"""Starting ranks with Horovod's own launcher on loopback, bounded in time, leaving nothing behind."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from typing import Mapping, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LAUNCHER = "from horovod.runner.launch import run_commandline; run_commandline()"


def horovodrun(
    folder: pathlib.Path,
    arguments: Sequence[str],
    cwd: pathlib.Path = ROOT,
    seconds: float = 540.0,
    environ: Optional[Mapping[str, str]] = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ``python ARGUMENTS`` as two ranks.

    Args:
        folder: Where Horovod is installed.
        arguments: Of each rank's Python.
        cwd: Working directory of the ranks.
        seconds: After which launcher and ranks are ended.
        environ: Added to the environment.
    """
    command = [sys.executable, "-c", _LAUNCHER, "-np", "2", "--gloo", "--network-interface", "lo"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        **(environ or {}),
    }
    with subprocess.Popen(
        [*command, sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            output, _ = process.communicate()
            output += f"\nended after {seconds:g} s"
    return subprocess.CompletedProcess(command, process.returncode, output, "")


def commands_with(text: str) -> list[str]:
    """Command lines of running processes that hold a text."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [command] if text in command else []
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the launcher, which ends its ranks when it is told to; they lead sessions of their own."""
    children = _descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _descendants(pid: int) -> list[int]:
    """Processes below one, by the parents that the kernel tells."""
    parents: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found
