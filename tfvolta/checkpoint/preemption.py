"""Hearing that the process is told to end, also while the training thread is inside a long call."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable, Optional

from tfvolta.errors import PREEMPTED_EXIT_CODE

# A launcher and the scheduler above it may both pass one request on; only a later one means hurry.
SAME_REQUEST_SECONDS = 1.0
_NOTICE_SECONDS = 1.0

_listening: weakref.WeakSet[TerminationSignal] = weakref.WeakSet()


class TerminationSignal:
    """Listens for SIGTERM from ``start`` to ``stop``; another one, a second later or more, ends the process at once.

    Python runs a signal's handler between two steps of the main thread, which may be minutes away while a step waits
    for other workers. The number of the signal is written to a pipe at once, though, and a thread reads it there.
    """

    def __init__(self, heard: Callable[[], None], in_training: Callable[[Optional[FrameType]], bool]):
        """Prepares.

        Args:
            heard: Called once, from another thread, when the signal came.
            in_training: Whether the frame that a signal interrupted belongs to the training; elsewhere the signal is
                left to what handled it before.
        """
        self._heard, self.in_training = heard, in_training
        self._former: Any = None
        self._former_pipe = -1
        self._read = self._write = -1
        self._first: Optional[float] = None
        self._listener: Optional[threading.Thread] = None
        self._noticed = threading.Event()

    def start(self) -> bool:
        """Starts listening; False outside of the main thread, where Python allows no signal handlers."""
        if threading.current_thread() is not threading.main_thread():
            return False
        _stop_those_of_failed_fits()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._former_pipe = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._former = signal.signal(signal.SIGTERM, self._handle)
        self._listener = threading.Thread(target=self._listen, name="tfvolta-sigterm", daemon=True)
        self._listener.start()
        _listening.add(self)
        return True

    def stop(self) -> None:
        """Puts the former handler back."""
        if self._listener is None:
            return
        self._put_back()
        _listening.discard(self)
        os.close(self._write)
        self._listener.join()
        os.close(self._read)
        self._listener = None

    def _put_back(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._former is None else self._former)
        signal.set_wakeup_fd(self._former_pipe)

    def forked(self) -> None:
        """To be called in a child process, whose signals are not the parent's."""
        self._put_back()
        self._listener = None

    def _listen(self) -> None:
        while True:
            numbers = os.read(self._read, 64)
            if not numbers:
                return
            if signal.SIGTERM in numbers:
                self._ask()
                self._noticed.set()
            self._pass_on(numbers)

    def _ask(self) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
            self._heard()
        elif now - self._first >= SAME_REQUEST_SECONDS:
            os._exit(PREEMPTED_EXIT_CODE)

    def _pass_on(self, numbers: bytes) -> None:
        """Gives the numbers to whoever listened for them before, such as an event loop."""
        if self._former_pipe >= 0:
            os.write(self._former_pipe, numbers)

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if self.in_training(frame):
            self._noticed.wait(_NOTICE_SECONDS)  # the listener hears it, before the next batch begins
            return
        self.stop()
        os.kill(os.getpid(), signal.SIGTERM)


def _stop_those_of_failed_fits() -> None:
    """A fit that ended by an error told nobody."""
    for each in list(_listening):
        if not each.in_training(sys._getframe(1)):
            each.stop()


def _forget_in_child() -> None:
    """A pool of workers ends them by SIGTERM; through the inherited pipe the parent would take that for its own."""
    for each in list(_listening):
        each.forked()
    _listening.clear()


os.register_at_fork(after_in_child=_forget_in_child)
