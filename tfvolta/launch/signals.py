"""Signals to the launcher: noticed at once, acted on by its loop."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Optional

# What ends a run, and is passed on to the workers.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What asks the workers for their stacks.
ASKING = signal.SIGUSR1


class Signals:
    """Collects signals while it is entered, and makes a descriptor readable for each.

    Attributes:
        handle: Readable when a signal has come or a child has ended.
    """

    def __init__(self) -> None:
        self.handle, self._writing = os.pipe()
        os.set_blocking(self.handle, False)
        os.set_blocking(self._writing, False)
        self._come: list[int] = []
        self._former: dict[int, Any] = {}
        self._former_wakeup = -1

    def __enter__(self) -> Signals:
        self._former_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (*ENDING, ASKING, signal.SIGCHLD):
            former = signal.getsignal(number)
            if former is signal.SIG_IGN and number is not signal.SIGCHLD:
                continue  # nohup, or a shell that started this in the background
            self._former[number] = former
            signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former if former is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(self._former_wakeup)
        os.close(self.handle)
        os.close(self._writing)

    @property
    def tells_to_end(self) -> bool:
        """Whether a signal that ends a run has come and was not taken yet."""
        return any(number in ENDING for number in self._come)

    def come(self) -> list[int]:
        """The signals since the last call, but the ends of children."""
        try:
            while os.read(self.handle, 4096):
                pass
        except BlockingIOError:
            pass
        come, self._come = self._come, []
        return come

    def _take(self, number: int, frame: Optional[FrameType]) -> None:
        if number != signal.SIGCHLD:
            self._come.append(number)
