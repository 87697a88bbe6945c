"""A process that ends the workers when the launcher itself was killed and can end nobody any more."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import NoReturn

from tfvolta.launch.mark import Mark


class Guardian:
    """Knows the process groups of the workers, and kills them when the pipe to the launcher closes.

    The kernel's own means, a signal at the death of the parent, reaches a worker but not the processes that it started.

    Attributes:
        mark: To be put on the environment of what is started: what bears it is ended too, whatever its group.
    """

    def __init__(self, folder: str):
        """Forks; to be called while this process has one thread.

        Args:
            folder: Removed too when the launcher was killed.
        """
        self.mark = Mark()
        reading, self._writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writing)
            _watch(reading, folder, self.mark)
        os.close(reading)

    def add(self, group: int) -> None:
        """A worker with this process group was started."""
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Nothing is left of this process group."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the guardian; groups that were not removed are killed, and what else was left behind."""
        os.close(self._writing)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _tell(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody killed it; the workers have the kernel's signal
            os.write(self._writing, text.encode())


def _watch(reading: int, folder: str, mark: Mark) -> NoReturn:
    """The life of the guardian; it never returns into the code of the launcher."""
    groups: set[int] = set()
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(nothing, handle)
        with os.fdopen(reading, encoding="ascii") as lines:
            for line in lines:
                change = groups.add if line[0] == "+" else groups.discard
                change(int(line[1:]))
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        mark.end()
        if groups:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)
