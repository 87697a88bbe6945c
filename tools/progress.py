"""Long commands that show life: output goes to a log file, a line every ten seconds says what is being done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Callable, Mapping, Optional, Sequence

HEARTBEAT_SECONDS = 10.0
WIDTH = 110
_print_lock = threading.Lock()


def say(text: str) -> None:
    """Prints whole lines at once, also from several threads."""
    with _print_lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def last_line(log: Path, limit: int = 4096) -> str:
    """The last line with text in it that a command has written so far."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith("WARNING")]
    return telling[-1] if telling else "starting"


def tail(log: Path, lines: int = 60) -> str:
    """The end of a log, indented."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in text)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a command with everything that it started: it leads a process group of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _wait(process: subprocess.Popen[bytes], beat: Callable[[], None], deadline: float) -> int:
    while True:
        try:
            return process.wait(timeout=HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            beat()
            if time.monotonic() > deadline:
                _stop(process)
                return 124


class Commands:
    """Commands that run now; ``stop_all`` ends them when the user presses Ctrl-C.

    Attributes:
        stopped: Whether that has happened; then no other command is started.
    """

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self.stopped = False

    def run(
        self,
        label: str,
        command: Sequence[str],
        log: Path,
        environment: Optional[Mapping[str, str]] = None,
        describe: Callable[[str], str] = str,
        limit_seconds: float = 3600.0,
    ) -> int:
        """Runs one command to its end and returns its exit status; 124 when it ran past the limit.

        Args:
            label: What is being done, shown with each heartbeat.
            command: Program and arguments.
            log: File that receives its output.
            environment: Whole environment of the command; this process's when absent.
            describe: Turns the last line of output into what a heartbeat shows.
            limit_seconds: After which the command and its children are ended.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with log.open("wb") as output:
            process = self._start(command, output, environment)
        if process is None:
            return 130

        def beat() -> None:
            doing = describe(last_line(log))
            say(f"  {time.monotonic() - started:4.0f} s  {label}: {doing}"[:WIDTH])

        try:
            return _wait(process, beat, started + limit_seconds)
        finally:
            with self._lock:
                self._running.remove(process)

    def _start(
        self, command: Sequence[str], output: IO[bytes], environment: Optional[Mapping[str, str]]
    ) -> Optional[subprocess.Popen[bytes]]:
        with self._lock:
            if self.stopped:
                return None
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            self._running.append(process)
            return process

    def stop_all(self) -> None:
        """Ends every running command with its children; later ones are not started."""
        with self._lock:
            self.stopped = True
            running = list(self._running)
        for process in running:
            _stop(process)
