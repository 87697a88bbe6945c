"""Standard output and standard error of the launcher: never waits for a slow reader, and never changes the stream."""

from __future__ import annotations

import collections
import errno
import os
import select
import time
from typing import Sequence

# A pipe that poll calls writable takes so much without waiting. Source: pipe(7), PIPE_BUF.
_AT_ONCE_BYTES = 4096
# With so much waiting, workers are not read any more, and wait themselves.
_MOST_BYTES = 1 << 20


class Outlet:
    """Lines on their way to a file descriptor that is shared with others, so that it must stay blocking.

    Attributes:
        handle: The file descriptor.
        is_broken: Whether nobody reads any more; what comes is dropped.
        fault: Why it is broken, where that is not a reader who has seen enough.
    """

    def __init__(self, handle: int):
        self.handle = handle
        self.is_broken = False
        self.fault = ""
        self._pending: collections.deque[bytes] = collections.deque()
        self._bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something is left to be written."""
        return bool(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether the reader is so far behind that workers have to wait."""
        return self._bytes >= _MOST_BYTES

    def put(self, lines: Sequence[bytes], before: bytes = b"") -> None:
        """Takes lines, to be written when the reader has room."""
        if self.is_broken:
            return
        for line in lines:
            whole = before + line + b"\n"
            self._bytes += len(whole)
            self._pending.extend(whole[at : at + _AT_ONCE_BYTES] for at in range(0, len(whole), _AT_ONCE_BYTES))

    def say(self, text: str) -> None:
        """Takes a message of the launcher's own."""
        self.put([f"tfvolta: {text}".encode("utf-8", "backslashreplace")])

    def write(self) -> None:
        """Writes one piece; to be called when the descriptor is writable."""
        if not self._pending:
            return
        piece = self._pending.popleft()
        while self._pending and len(piece) + len(self._pending[0]) <= _AT_ONCE_BYTES:
            piece += self._pending.popleft()
        try:
            written = os.write(self.handle, piece)
        except BlockingIOError:  # somebody else made the descriptor non-blocking
            written = 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF):
                raise
            self.is_broken = True
            self.fault = "" if error.errno == errno.EPIPE else error.strerror or str(error)
            self._pending.clear()
            self._bytes = 0
            return
        self._bytes -= written
        if written < len(piece):
            self._pending.appendleft(piece[written:])

    def drain(self, seconds: float) -> None:
        """Writes what is left; a reader that has stopped reading is waited for so long and no longer."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.handle, select.POLLOUT)
        while self._pending and (poll.poll(200) or time.monotonic() < until):
            if poll.poll(0):
                self.write()
