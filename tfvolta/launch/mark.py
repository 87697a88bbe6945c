"""A variable by which a launcher knows its descendants, also those in process groups and sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from typing import Mapping

VARIABLE = "TFVOLTA_STARTED_BY"
_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.01


class Mark:
    """Marks what is started, and finds it again.

    A process group loses who calls ``setsid``, and a parent loses whose own parent ended. The environment with which a
    program was started stays in ``/proc`` for its whole life; only a program that is started with an emptied
    environment is not found.

    Attributes:
        name: Occurs in no other launcher's mark.
    """

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex

    def on(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment with the mark, next to those of launchers further up."""
        above = environ.get(VARIABLE, "")
        return {**environ, VARIABLE: f"{above}:{self.name}" if above else self.name}

    def processes(self) -> list[int]:
        """Living processes that bear the mark. Source: proc(5), /proc/PID/environ and /proc/PID/stat."""
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and self._is_on(entry)]

    def end(self) -> None:
        """Kills what bears the mark, until nothing does; what starts others meanwhile is met again."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            found = self.processes()
            if not found:
                return
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)

    def _is_on(self, entry: str) -> bool:
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environ = file.read()
            if self.name.encode() not in environ:
                return False
            with open(f"/proc/{entry}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:  # it has ended, or is somebody else's
            return False
        return state not in (b"Z", b"X") and any(
            part.startswith(f"{VARIABLE}=".encode()) and self.name.encode() in part for part in environ.split(b"\0")
        )
