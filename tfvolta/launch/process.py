"""One worker: its process group, its output, and how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import BinaryIO, Callable, Mapping, Optional, Sequence

from tfvolta.launch.lines import Lines, last_lines, prefix
from tfvolta.launch.outlet import Outlet
from tfvolta.launch.tasks import Task

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)
# What a worker leaves behind, such as multiprocessing's resource tracker, tidies up at the end of its parent.
_LEFTOVER_SECONDS = 2.0


def _prepare(parent: int, cpus: Sequence[int]) -> Callable[[], None]:
    """What the child does between fork and exec: it dies with the launcher, and runs on its own processors."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the launcher died before the line above
            os._exit(1)
        if cpus:
            os.sched_setaffinity(0, cpus)

    return prepare


def start_process(
    command: Sequence[str], environ: Mapping[str, str], cpus: Sequence[int] = (), output: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, with pipes for its output.

    The code between fork and exec is safe because the launcher has one thread.

    Args:
        command: The program and its arguments.
        environ: Its environment.
        cpus: Processors that it may use; all of them when empty.
        output: A file that takes its standard output and its standard error instead.

    Raises:
        OSError: The program cannot be started.
    """
    return subprocess.Popen(
        list(command),
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_prepare(os.getpid(), tuple(cpus)),
    )


class Worker:
    """A started worker.

    Attributes:
        task: What it is in the run.
        returncode: As ``subprocess`` gives it; None while it runs.
        is_gone: Whether it has ended, and nothing of its group is left.
        step: The step in which it was last seen when it ended.
    """

    def __init__(self, task: Task, popen: subprocess.Popen[bytes], outlets: tuple[Outlet, Outlet], log: Optional[Path]):
        """Takes over a process.

        Args:
            task: What it is in the run.
            popen: From ``start_process``.
            outlets: For its standard output and its standard error.
            log: File that takes both, without prefixes; appended to.
        """
        assert popen.stdout is not None and popen.stderr is not None
        self.task = task
        self.group = popen.pid
        self.returncode: Optional[int] = None
        self.is_gone = False
        self.step: Optional[int] = None
        self._popen = popen
        self._ended_at = 0.0
        self._log: Optional[BinaryIO] = log.open("ab") if log is not None else None
        self._streams = []
        for pipe, outlet in zip((popen.stdout, popen.stderr), outlets):
            handle = os.dup(pipe.fileno())
            pipe.close()
            colour = os.isatty(outlet.handle) and not os.environ.get("NO_COLOR")
            self._streams.append((Lines(handle), outlet, prefix(task.name, task.rank, colour)))

    @property
    def handles(self) -> list[int]:
        """Pipes from which more may come, and whose reader has room."""
        return [lines.handle for lines, outlet, _ in self._streams if lines.is_open and not outlet.is_full]

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped its process, which goes on when told so. Source: proc(5), /proc/PID/stat."""
        if self.returncode is not None:
            return False
        try:
            with open(f"/proc/{self.group}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
        except OSError:
            return False

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its standard error."""
        return last_lines(self._streams[1][0].last)

    def pump(self) -> None:
        """Passes on the lines that are there."""
        for lines, outlet, before in self._streams:
            if lines.is_open and not outlet.is_full:
                self._pass_on(lines.read(), outlet, before)

    def signal(self, number: int) -> None:
        """Sends a signal to the worker and all that it started."""
        if not self.is_gone:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group, number)

    def signal_one(self, pid: int, number: int) -> None:
        """Sends a signal to one process of the worker's group, and to no other process of that number."""
        try:
            if not self.is_gone and os.getpgid(pid) == self.group:
                os.kill(pid, number)
        except ProcessLookupError:
            pass

    def look(self) -> bool:
        """Whether it has ended since the last call.

        Its process is reaped when nothing else of its group is left, or after a while: until then its number cannot be
        given to another process, so that signals reach nobody else.
        """
        if self.is_gone:
            return False
        before = self.returncode
        if before is None:
            self.returncode = _ended(self.group)
            self._ended_at = time.monotonic()
        if self.returncode is not None:
            self._reap()
        return before is None and self.returncode is not None

    def _reap(self) -> None:
        if _members(self.group):
            if time.monotonic() - self._ended_at < _LEFTOVER_SECONDS:
                return
            self.signal(signal.SIGKILL)
        self._popen.wait()
        self.is_gone = True
        for lines, outlet, before in self._streams:
            self._pass_on(lines.finish(), outlet, before)
        self._give_log_up()

    def end_now(self) -> None:
        """Kills what is left, for a launcher that cannot go on."""
        if not self.is_gone:
            self.signal(signal.SIGKILL)
            self._popen.wait()
            self.is_gone = True

    @property
    def has_leftovers(self) -> bool:
        """Whether the worker itself has ended and something that it started has not."""
        return self.returncode is not None and not self.is_gone

    def _pass_on(self, lines: list[bytes], outlet: Outlet, before: bytes) -> None:
        outlet.put(lines, before)
        if self._log is not None and lines:
            try:
                self._log.write(b"".join(line + b"\n" for line in lines))
                self._log.flush()
            except OSError as error:  # a full disk is no reason to stop training
                self._streams[1][1].say(f"the log of {self.task.name} ends here: {error.strerror}")
                self._give_log_up()

    def _give_log_up(self) -> None:
        if self._log is not None:
            with contextlib.suppress(OSError):  # what could not be written is written again
                self._log.close()
            self._log = None


def _ended(pid: int) -> Optional[int]:
    """How a child ended, as ``subprocess`` gives it, without reaping it; None while it runs."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _members(group: int) -> list[int]:
    """Living processes of a group besides its leader. Source: proc(5), /proc/PID/stat."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == group:
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                state, _, own = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(own) == group and state not in (b"Z", b"X"):
            found.append(int(entry))
    return found
