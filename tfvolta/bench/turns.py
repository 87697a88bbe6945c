"""What a contender and the bench say to each other: one JSON object a line, over a socket of this machine.

The contender connects and says ``hello``; it says ``epoch`` at the end of each epoch, and waits for a line from the
bench before the next one. A connection that ends is a contender, or a bench, that has ended.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Mapping, Optional

# Path of the bench's socket, and which contender this is.
SOCKET = "TFVOLTA_BENCH_SOCKET"
NAME = "TFVOLTA_BENCH_CONTENDER"


class BenchGone(SystemExit):
    """The bench has ended, so there is nobody to measure for."""


class Turns:
    """The contender's end.

    Raises:
        OSError: Nobody listens.
    """

    def __init__(self, path: str, name: str):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self.say("hello", name=name, pid=os.getpid())

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Optional[Turns]:
        """From the environment of a contender; None for a script that somebody starts by hand."""
        path = environ.get(SOCKET)
        return None if not path else cls(path, environ.get(NAME, ""))

    def say(self, kind: str, **values: Any) -> None:
        """Sends one line.

        Raises:
            BenchGone: Nobody reads it.
        """
        try:
            self._socket.sendall(json.dumps({"kind": kind, **values}).encode() + b"\n")
        except OSError as error:
            raise BenchGone(1) from error

    def wait(self) -> None:
        """Waits for this contender's turn.

        Raises:
            BenchGone: The bench has ended.
        """
        if not self._lines.readline():
            raise BenchGone(1)


class Lines:
    """The bench's end of one connection: whole lines out of what has come so far.

    Attributes:
        handle: Descriptor to wait for.
        is_open: Whether more may come.
    """

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._connection.setblocking(False)
        self._rest = b""
        self.handle = connection.fileno()
        self.is_open = True

    def read(self) -> list[dict[str, Any]]:
        """What has come; a line that is no JSON object is left out."""
        try:
            found = self._connection.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            found = b""
        if not found:
            self.is_open = False
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [message for message in map(_parsed, lines) if message is not None]

    def go(self) -> None:
        """Gives the turn; one whose contender has gone is noticed by the next read."""
        try:
            self._connection.sendall(b"go\n")
        except OSError:
            self.is_open = False

    def close(self) -> None:
        """Ends the connection, and with it a contender that waits for its turn."""
        self.is_open = False
        self._connection.close()


def _parsed(line: bytes) -> Optional[dict[str, Any]]:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
