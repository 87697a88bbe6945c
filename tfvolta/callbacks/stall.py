"""What the watchdog does when training stands still: stacks, who is missing, evidence, and the end of the process."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Callable, Optional

from tfvolta.errors import Problem, StallError
from tfvolta.evidence.heartbeat import read_heartbeats
from tfvolta.evidence.missing import standstill
from tfvolta.knobs.watchdog import Watchdog as WatchdogKnob

if TYPE_CHECKING:
    from tfvolta.session import Session

STACKS = "stacks.txt"
_STDERR = 2
# The disk or the terminal may be what hangs, so nothing that writes may hold up the end for longer than this.
_PATIENCE_SECONDS = 10.0


class Stall:
    """Called by ``StallWatch`` in its thread.

    Args:
        session: The session whose training stands still.
        heartbeats: Folder in which the workers of the run write signs of life; None where there is none.
    """

    def __init__(self, session: Session, heartbeats: Optional[str]):
        self._session = session
        self._heartbeats = heartbeats

    def __call__(self, seconds: float, limit: float) -> None:
        """Writes stacks and evidence; ends the process where the config says so."""
        watch = self._session.context.saved[WatchdogKnob.name]
        name = self._session.place.worker or "this process"
        step = int(watch.counts[0])
        text = f"{name} has made no progress for {seconds:.0f} s in step {step} ({watch.state}; limit {limit:g} s)"
        end = self._ends()
        if end:
            watch.state = "stalled"
            watch.check()
        _patiently(lambda: self._say(text))
        _patiently(lambda: self._record(text, end))
        if end:
            _patiently(_flush)
            os._exit(StallError.exit_code)

    def _ends(self) -> bool:
        value = WatchdogKnob().value(self._session.config)
        return bool(value and value["end"])

    def _say(self, text: str) -> None:
        """Stacks to standard error and into the run's folder; raw writes, for the main thread may hold the streams."""
        os.write(_STDERR, f"\ntfvolta: watchdog: {text}.\n{self._others()}Stacks of all threads:\n".encode())
        faulthandler.dump_traceback(file=_STDERR, all_threads=True)
        path = self._stacks_path()
        if path is None:
            return
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n{self._others()}")
            file.flush()
            faulthandler.dump_traceback(file=file, all_threads=True)
            os.write(_STDERR, f"tfvolta: watchdog: the stacks are in {path} too\n".encode())

    def _others(self) -> str:
        """Who is missing, as a line; empty for a process that trains alone."""
        place = self._session.place
        # Workers of parameter servers serve, and only the chief trains.
        alone = place.workers < 2 or self._session.config.get("strategy.kind") == "parameter_server"
        if self._heartbeats is None or alone:
            return ""
        beats = read_heartbeats(self._heartbeats)
        return f"{standstill(beats, time.time()).sentence}.\n" if len(beats) > 1 else ""

    def _stacks_path(self) -> Optional[str]:
        path = self._session.recorder.path
        return None if path is None else os.path.join(os.path.dirname(path), STACKS)

    def _record(self, text: str, end: bool) -> None:
        """Puts the standstill into the evidence, and its end where the process ends."""
        stacks = self._stacks_path()
        others = self._others().strip()
        sentence = " ".join([f"watchdog: {text}.", *([others] if others else [])])
        if not end:
            self._session.recorder.warned(sentence)
            return
        problem = Problem(
            where=self._session.place.worker or "training",
            expected="a batch that ends within watchdog.stall_seconds",
            received=text,
            why=others or "a call does not return; the stacks show which",
            fix=f"read the stacks in {stacks}" if stacks else "read the stacks on standard error",
        )
        self._session.close("failed", StallError("Training stands still.", [problem]))


def _patiently(action: Callable[[], None]) -> None:
    """Runs what may hang in a thread, and goes on without it after a while."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, replaced by something else, or broken
            stream.flush()
