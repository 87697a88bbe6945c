"""A thread that calls something again and again."""

from __future__ import annotations

import threading
from typing import Callable, Optional


class Ticker:
    """Calls an action in a thread of its own until it is stopped.

    Args:
        name: Of the thread.
        period_seconds: Time between two calls.
        action: What to call.
    """

    def __init__(self, name: str, period_seconds: float, action: Callable[[], None]):
        self._name = name
        self._period_seconds = period_seconds
        self._action = action
        self._thread: Optional[threading.Thread] = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Starts the thread where it does not run; a forked child has none of its parent's threads."""
        if not self.is_running:
            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._thread = None

    @property
    def is_running(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.wait(self._period_seconds):
            self._action()
