"""Loopback ports for the workers of a run: free now, and not chosen by another launch at the same time."""

from __future__ import annotations

import contextlib
import secrets
import socket
from types import TracebackType
from typing import Iterator, Optional, Sequence

from tfvolta.cluster.ports import FIRST, LAST, WIDTH, meeting_port
from tfvolta.errors import LaunchError, Problem

LOOPBACK = "127.0.0.1"
_TRIES = 200


class Ports:
    """A row of ports, reserved as long as this process lives or until ``close``.

    TensorFlow's servers cannot share a port with a socket that holds it, so the ports themselves stay free. What is
    held is a name: an abstract socket, which the kernel gives up when the process ends, however it ends. Such names
    are known in one network namespace, as ports are.

    Attributes:
        numbers: The ports, in ascending order.
    """

    def __init__(self, count: int):
        """Reserves.

        Args:
            count: How many ports are needed, the one of the meeting before training not counted.

        Raises:
            LaunchError: None are free.
        """
        self._lock: Optional[socket.socket] = None
        for first in _candidates(count):
            numbers = tuple(range(first, first + count))
            lock = _locked(first)
            if lock is None:
                continue
            if _are_free((*numbers, meeting_port(first, frozenset(numbers)))):
                self._lock, self.numbers = lock, numbers
                return
            lock.close()
        problem = Problem(
            where="loopback ports",
            expected=f"{count} free ports in a row between {FIRST} and {LAST}",
            received=f"none in {_TRIES} tries",
            fix="end processes that listen there (ss -ltn shows them)",
        )
        raise LaunchError("There are no free ports for the workers.", [problem])

    def close(self) -> None:
        """Gives the ports up."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Ports:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The ports with their host."""
        return tuple(f"{LOOPBACK}:{number}" for number in self.numbers)


def _candidates(count: int) -> Iterator[int]:
    """First ports, at random and below those that Linux hands out by itself."""
    rows = max(1, (LAST + 1 - FIRST - count) // WIDTH)
    for _ in range(_TRIES):
        yield FIRST + WIDTH * secrets.randbelow(rows)


def _locked(first: int) -> Optional[socket.socket]:
    """A held name for a row of ports; None where another process holds it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0tfvolta-ports-{first}")
    except OSError:
        lock.close()
        return None
    return lock


def _are_free(numbers: Sequence[int]) -> bool:
    with contextlib.ExitStack() as stack:
        for number in numbers:
            probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do after a restart
            try:
                probe.bind((LOOPBACK, number))
            except OSError:
                return False
    return True
