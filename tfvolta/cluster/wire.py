"""JSON lines over a TCP connection, with limits on size and time."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Optional

# A report holds a config and some versions; a verdict holds a line for each worker.
MOST_BYTES = 4 * 2**20


class WireError(Exception):
    """The other side closed, was silent for too long, or sent what is no line of JSON."""


class Wire:
    """One connection that carries JSON objects, one a line.

    Attributes:
        peer: Address of the other side.
    """

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self._rest = b""
        self.peer = _peer(connection)

    def send(self, message: dict[str, Any], seconds: float = 10.0) -> None:
        """Sends one object.

        Raises:
            WireError: The other side takes nothing.
        """
        self._socket.settimeout(max(seconds, 0.01))
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next object.

        Args:
            seconds: How long to wait for the whole line.

        Raises:
            WireError: It did not come, or is none.
        """
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if len(self._rest) > MOST_BYTES:
                raise WireError(f"a line of more than {MOST_BYTES} bytes")
            self._rest += self._some(until)
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError as error:
            raise WireError(f"no line of JSON: {line[:60]!r}") from error
        if not isinstance(message, dict):
            raise WireError(f"no JSON object: {line[:60]!r}")
        return message

    def _some(self, until: float) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise WireError("silent for too long")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            raise WireError(str(error) or "silent for too long") from error
        if not data:
            raise WireError("the other side closed the connection")
        return data

    @property
    def is_open(self) -> bool:
        """Whether the other side is still there, as far as the operating system knows."""
        self._socket.settimeout(0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def _peer(connection: socket.socket) -> str:
    try:
        name: Optional[Any] = connection.getpeername()
    except OSError:
        return "unknown"
    return str(name[0]) if isinstance(name, tuple) else str(name)
