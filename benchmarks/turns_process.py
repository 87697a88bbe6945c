"""One measured process as the driver of turns sees it: started, heard within limits, and ended with all it made."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import time
from typing import Any, Optional

from benchmarks.baton import PIPES

TAIL = 1200  # characters of a log that go with a failure
POLL_SECONDS = 0.2


class FailureError(Exception):
    """Why a process is left out."""


class Process:
    """A process that waits for its turns.

    Args:
        command: What to run.
        environ: Whole environment; the baton's pipes are added.
        log: File for both output streams.
    """

    def __init__(self, command: list[str], environ: dict[str, str], log: pathlib.Path):
        self.log = log
        its_source, self._sink = os.pipe()
        self._source, its_sink = os.pipe()
        self._rest = b""
        try:
            with log.open("wb") as file:
                self._process = subprocess.Popen(
                    command,
                    env={**environ, PIPES: f"{its_source},{its_sink}"},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    pass_fds=(its_source, its_sink),
                    start_new_session=True,
                )
        except OSError as error:
            self._close_pipes()
            raise FailureError(f"did not start: {error}") from error
        finally:
            os.close(its_source)
            os.close(its_sink)

    def say(self, word: str) -> None:
        """Gives a word.

        Raises:
            FailureError: The process is gone.
        """
        try:
            os.write(self._sink, word.encode() + b"\n")
        except OSError as error:
            raise self.failure("ended") from error

    def hear(self, event: str, until: float) -> dict[str, Any]:
        """The process's next line, which must be of the given kind.

        Args:
            event: Kind of line.
            until: Moment of ``time.monotonic()`` at which waiting ends.

        Raises:
            FailureError: It ended, said something else, or was late.
        """
        while True:
            line = self.heard(max(0.0, min(POLL_SECONDS, until - time.monotonic())))
            if line is not None:
                break
            if time.monotonic() >= until:
                raise self.failure("was late")
        if line.pop("event", None) != event:
            raise self.failure(f"said {str(line)[:100]} where {event} was expected")
        return line

    def heard(self, seconds: float = 0.0) -> Optional[dict[str, Any]]:
        """A line if one comes in that time.

        Raises:
            FailureError: It ended, or what it said is no JSON.
        """
        if b"\n" not in self._rest and select.select([self._source], [], [], seconds)[0]:
            part = os.read(self._source, 65536)
            if not part:
                raise self.failure("ended")
            self._rest += part
        if b"\n" not in self._rest:
            if self._process.poll() is not None and not select.select([self._source], [], [], 0)[0]:
                raise self.failure("ended")
            return None
        text, self._rest = self._rest.split(b"\n", 1)
        try:
            found = json.loads(text)
        except ValueError as error:
            raise self.failure(f"said {text[:100]!r}, which is no JSON") from error
        return dict(found)

    def failure(self, what: str) -> FailureError:
        """What went wrong, with the exit code and the end of the log."""
        if what == "ended":
            with contextlib.suppress(subprocess.TimeoutExpired):
                what = f"ended with exit code {self._process.wait(timeout=2)}"
        return FailureError(f"{what}; its log ends: {self.tail()}")

    def tail(self) -> str:
        """The end of the log."""
        text = self.log.read_bytes()[-TAIL:].decode("utf-8", "replace")
        return text.strip()

    def end(self, seconds: float = 0.0) -> Optional[int]:
        """Ends the process and all that it started, at once or after some time to end by itself; its exit code."""
        code = None
        if seconds:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_pipes()
        return code

    def _close_pipes(self) -> None:
        for each in (self._source, self._sink):
            with contextlib.suppress(OSError):
                os.close(each)
        self._source = self._sink = -1
