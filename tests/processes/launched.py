"""A launch in a process of its own: its lines as they come, and whether it left anything behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Mapping, Optional, Sequence

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Workers without TensorFlow are the same on every stack.
once = pytest.mark.skipif(
    version("tensorflow").startswith("2.15") or os.environ.get("TF_USE_LEGACY_KERAS") == "1",
    reason="no TensorFlow in these workers; run once, on keras3",
)
# Generous, for machines on which several test runs share two cores.
LIMIT_SECONDS = 300.0
# Before what a test's workers do: each says who it is, so that the test knows whom to look for afterwards.
HEAD = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"] if "TF_CONFIG" in os.environ else {}
index = task.get("index", int(os.environ.get("HOROVOD_RANK", 0)))
print("PID", os.getpid(), flush=True)
def block():
    os.read(os.pipe()[0], 1)
"""


def clean_environment(**changes: str) -> dict[str, str]:
    """This process's environment without what a scheduler of the test machine may have set."""
    taken = ("TF_CONFIG", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "TFVOLTA_RUN_ID")
    kept = {name: value for name, value in os.environ.items() if name not in taken}
    path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "GCE_METADATA_IP": "127.0.0.1:9", **changes}


class Launched:
    """A running ``tfvolta launch``.

    Attributes:
        out: Lines of standard output so far.
        err: Lines of standard error so far.
        code: Exit code, after ``wait``.
    """

    def __init__(
        self,
        folder: Path,
        body: str,
        *options: str,
        arguments: Sequence[str] = (),
        environ: Optional[Mapping[str, str]] = None,
    ):
        """Writes the script and launches it."""
        script = folder / "work.py"
        script.write_text(HEAD + textwrap.dedent(body))
        command = [sys.executable, "-m", "tfvolta", "launch", *options, script.name, *arguments]
        self._popen = subprocess.Popen(
            command,
            cwd=folder,
            env=clean_environment(**(environ or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self.code: Optional[int] = None
        self._came = threading.Condition()
        self._readers = [self._read(self._popen.stdout, self.out), self._read(self._popen.stderr, self.err)]

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Whatever the test did, nothing stays behind."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(LIMIT_SECONDS)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join(LIMIT_SECONDS)

    def _read(self, stream: Optional[IO[str]], lines: list[str]) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            with stream:
                for line in stream:
                    with self._came:
                        lines.append(line.rstrip("\n"))
                        self._came.notify_all()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def wait_for(self, pattern: str, count: int = 1) -> None:
        """Waits until so many lines of either stream match."""

        def come() -> bool:
            return sum(re.search(pattern, line) is not None for line in [*self.out, *self.err]) >= count

        with self._came:
            assert self._came.wait_for(come, LIMIT_SECONDS), (pattern, self.out, self.err)

    def wait(self) -> int:
        """Waits for the end; the exit code. Nothing may be left behind."""
        self.code = self._popen.wait(LIMIT_SECONDS)
        for reader in self._readers:
            reader.join(LIMIT_SECONDS)
            assert not reader.is_alive(), "something still holds the launcher's output"
        assert_gone(self.pids)
        return self.code

    def signal(self, number: int) -> None:
        """Sends a signal to the launcher alone."""
        os.kill(self._popen.pid, number)

    @property
    def pids(self) -> list[int]:
        """The processes that have said who they are."""
        with self._came:
            return [int(found[1]) for line in self.out if (found := re.search(r"PID (\d+)", line))]

    @property
    def said(self) -> list[str]:
        """What the launcher itself said."""
        return [line for line in self.err if line.startswith("tfvolta: ")]


def assert_gone(pids: Sequence[int]) -> None:
    """Every one of these processes ends, at once or as soon as the kernel has carried out the signal."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], LIMIT_SECONDS)
            assert ended, f"process {pid} was left behind: {Path(f'/proc/{pid}/cmdline').read_text()}"
        finally:
            os.close(handle)


def launch(folder: Path, body: str, *options: str, **settings: Any) -> Launched:
    """Launches, waits for the end, and returns what came of it."""
    with Launched(folder, body, *options, **settings) as launched:
        launched.wait()
    return launched


def summary(launched: Launched) -> dict[str, Any]:
    """What ``--json`` printed on the last line."""
    return dict(json.loads(launched.out[-1]))


def evidences(folder: Path, launched: Launched, start: int = -1) -> dict[str, dict[str, Any]]:
    """Evidence of each worker of one start, by its name."""
    run = folder / "runs" / summary(launched)["runs"][start]
    found = [json.loads(path.read_text()) for path in run.rglob("evidence.json")]
    return {evidence["worker"]["name"]: evidence for evidence in found}


def elapsed(since: float) -> float:
    """Seconds since a moment of ``time.monotonic``."""
    return time.monotonic() - since
