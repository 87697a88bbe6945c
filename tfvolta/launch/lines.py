"""Output of a worker in whole lines, each with the worker's name before it."""

from __future__ import annotations

import collections
import os
import re
from typing import Iterable

_CHUNK_BYTES = 65536
# A worker that writes without end must not keep the others waiting.
_CHUNKS = 16
# A line without an end is passed on in pieces of this size, so that memory stays bounded.
_LONGEST_BYTES = 65536
# Progress bars return to the start of the line; each state becomes a line.
_ENDS = re.compile(rb"\r\n|\n|\r")
# Colours of prefixes, by rank: cyan, yellow, green, magenta, blue, and their bright forms.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
KEPT_LINES = 20
# Information and warnings in the form of absl and glog: a letter, month and day.
_CHATTER = re.compile(r"[IW]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] |WARNING: All log messages before absl::")


class Lines:
    """Turns what arrives in a pipe into lines.

    Attributes:
        is_open: Whether more may come.
        last: The last lines, for the report of a failure.
    """

    def __init__(self, handle: int):
        """Takes over a pipe.

        Args:
            handle: The reading end.
        """
        os.set_blocking(handle, False)
        self.handle = handle
        self.is_open = True
        self.last: collections.deque[bytes] = collections.deque(maxlen=KEPT_LINES)
        self._rest = b""

    def read(self) -> list[bytes]:
        """The lines that are complete by now; at the end of the pipe also what had no end of line."""
        lines: list[bytes] = []
        if not self.is_open:
            return lines
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(self.handle, _CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self._close()
                lines += [self._rest] if self._rest else []
                self._rest = b""
                break
            lines += self._split(chunk)
        self.last.extend(lines)
        return lines

    def finish(self) -> list[bytes]:
        """What is left, and the end of reading, though another process may still hold the pipe."""
        lines = self.read()
        if self.is_open:
            self._close()
            rest = [self._rest] if self._rest else []
            self.last.extend(rest)
            lines += rest
        return lines

    def _split(self, chunk: bytes) -> list[bytes]:
        text = self._rest + chunk
        # A carriage return at the very end may be the first half of an end of line.
        held = text[-1:] == b"\r"
        pieces = _ENDS.split(text[:-1] if held else text)
        self._rest = pieces.pop() + (b"\r" if held else b"")
        while len(self._rest) > _LONGEST_BYTES:
            pieces.append(self._rest[:_LONGEST_BYTES])
            self._rest = self._rest[_LONGEST_BYTES:]
        return pieces

    def _close(self) -> None:
        self.is_open = False
        os.close(self.handle)


def prefix(name: str, rank: int, colour: bool) -> bytes:
    """What stands before each line of a worker, such as ``[worker 1] ``."""
    text = f"[{name}]"
    if colour:
        text = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m"
    return text.encode() + b" "


def last_lines(lines: Iterable[bytes]) -> tuple[str, ...]:
    """The last lines as text, but empty ones at the end and what TensorFlow's libraries log while all is well."""
    found = [line.decode("utf-8", "replace").rstrip() for line in lines]
    found = [line for line in found if not _CHATTER.match(line)]
    while found and not found[-1]:
        found.pop()
    return tuple(found)
