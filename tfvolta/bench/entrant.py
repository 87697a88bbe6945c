"""A running contender: its process, what it has told so far, and how it ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Optional, Sequence

from pydantic import ValidationError

import tfvolta
from tfvolta.bench.contender import Contender
from tfvolta.bench.measured import Ending, Epoch, Lap
from tfvolta.bench.turns import NAME, SOCKET, Lines
from tfvolta.errors import EvidenceError
from tfvolta.evidence.reading import read, run_directories
from tfvolta.launch.guardian import Guardian
from tfvolta.launch.mark import Mark
from tfvolta.launch.process import start_process
from tfvolta.memory.exhaustion import is_exhaustion

_LAST_BYTES = 40_000
_KEPT = ("compilations",)
_ROOT = str(Path(tfvolta.__file__).resolve().parents[1])
_REFUSED = 2


class Entrant:
    """A contender that runs.

    Attributes:
        contender: Which.
        lines: What it says; None before it has connected.
        epochs: Those that have ended.
        ending: How it ended; None while all is well.
        reason: Why, in a sentence.
        command: Of its process.
    """

    def __init__(self, contender: Contender, command: Sequence[str], seed: int, folder: Path):
        """Prepares one; ``start`` starts it."""
        self.contender = contender
        self.lines: Optional[Lines] = None
        self.epochs: list[Epoch] = []
        self.ending: Optional[Ending] = None
        self.reason = ""
        self.command = tuple(command)
        self.seed = seed
        self.folder = folder
        self._environ = contender.environment
        self._built: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        self._measurements: dict[str, Any] = {}
        self._evidence: Optional[str] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._mark = Mark()
        self._guardian: Optional[Guardian] = None
        self._started = self._start_seconds = 0.0
        self.log = folder / f"{slug(contender.name)}-seed{seed}.log"

    def start(self, guardian: Guardian, socket: str) -> None:
        """Starts the process."""
        environ = {**os.environ, **self._environ, SOCKET: socket, NAME: self.contender.name}
        environ["PYTHONPATH"] = os.pathsep.join([_ROOT, *filter(None, [environ.get("PYTHONPATH")])])
        environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        environ = self._mark.on(guardian.mark.on(environ))
        self._started = time.monotonic()
        with self.log.open("wb") as file:
            self._process = start_process(self.command, environ, output=file.fileno())
        guardian.add(self._process.pid)
        self._guardian = guardian

    @property
    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def has_done(self, epochs: Optional[int]) -> bool:
        """Whether it has trained so many epochs; for None, whether its process has come to a good end."""
        if epochs is not None:
            return len(self.epochs) >= epochs
        return bool(self._after) and self._process is not None and self._process.poll() == 0

    def hear(self, message: dict[str, Any], place: Optional[int]) -> None:
        """Takes what it says.

        Args:
            message: One line.
            place: Whose turn it was in its round.
        """
        kind = message.pop("kind", None)
        if kind == "built":
            self._built = message
            self._start_seconds = time.monotonic() - self._started
        elif kind == "epoch":
            try:
                self.epochs.append(Epoch(**message, place=place))
            except ValidationError as error:  # another version of tfvolta, where python= names another environment
                self.fail(Ending.CRASH, f"it says what this version does not understand: {error.errors()[0]['msg']}")
        elif kind == "figures":
            self._after = message

    def fail(self, ending: Ending, reason: str) -> None:
        """It cannot go on; the first reason counts."""
        if self.ending is None:
            self.ending, self.reason = ending, reason

    def explain(self) -> None:
        """Takes the reason from a process that has ended too early."""
        assert self._process is not None
        code, text = self._process.returncode, self._printed()
        self.fail(*explained(code, text))

    def end(self) -> None:
        """Ends the process and all that it started; nothing is left of it."""
        if self.lines is not None:
            self.lines.close()
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._mark.end()
        if self._guardian is not None:
            self._guardian.remove(self._process.pid)
        self._process = None

    def lap(self, warmup: int) -> Lap:
        """What it measured.

        Args:
            warmup: Epochs that do not count.
        """
        return Lap(
            seed=self.seed,
            start_seconds=self._start_seconds or None,
            warmup=tuple(self.epochs[:warmup]),
            epochs=tuple(self.epochs[warmup:]),
            parameters=self._built.get("parameters"),
            after=self._after,
            measurements=self._measurements,
            evidence=self._evidence,
        )

    def take_evidence(self) -> None:
        """Keeps what its monitors have measured; to be called after the last round, before what follows it."""
        folders = run_directories(self.folder / slug(self.contender.name))
        if folders:
            with contextlib.suppress(EvidenceError):
                found = read(folders[-1])
                self._measurements = {name: found.measurements[name] for name in _KEPT if name in found.measurements}
                self._evidence = str(folders[-1])

    def _printed(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LAST_BYTES))
            return file.read().decode("utf-8", "replace")


def slug(name: str) -> str:
    """A name that is a plain name of a file."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", name).strip("._")[:60] or "contender"


def explained(code: int, text: str) -> tuple[Ending, str]:
    """How a process ended that was not done, and why.

    Args:
        code: As ``subprocess`` gives it.
        text: The last of what it printed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if is_exhaustion("", line)), None)
    if code == -signal.SIGKILL:
        return Ending.OUT_OF_MEMORY, "killed by SIGKILL, as the kernel does when memory runs out"
    if said is not None:
        return Ending.OUT_OF_MEMORY, said
    if code == _REFUSED:
        start = max((i for i, line in enumerate(lines) if line.startswith("tfvolta:")), default=0)
        return Ending.REFUSED, " ".join(line for line in lines[start:] if not line.startswith("{"))[:1000]
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    words = [line for line in lines if not line.startswith(("{", "tfvolta:"))]
    return Ending.CRASH, f"{how}: {words[-1] if words else 'nothing was printed'}"
