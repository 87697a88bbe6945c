"""XLA's buffer assignment, read from messages that are put together by hand."""

from __future__ import annotations

import pytest

from tfvolta.footprint.buffer_assignment import Buffers, buffers_of


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def allocation(size: int, *flags: int) -> bytes:
    return message(3, number(2, size) + b"".join(number(flag, 1) for flag in flags))


THREAD_LOCAL, PARAMETER, LIVE_OUT, CONSTANT = 3, 5, 7, 12
PROGRAM = message(1, b"module") + message(
    3,
    message(1, b"a logical buffer")
    + allocation(1000, PARAMETER)
    + allocation(500, PARAMETER, LIVE_OUT)  # a variable and its update
    + allocation(70, LIVE_OUT)
    + allocation(3_000_000_000)
    + allocation(8, CONSTANT)
    + allocation(4, THREAD_LOCAL),
)


def test_buffers_by_kind() -> None:
    found = buffers_of(PROGRAM)
    assert found == Buffers(parameters=1500, results=70, temporaries=3_000_000_000, constants=8)
    assert found.total == 3_000_001_578


@pytest.mark.parametrize("program", [b"", message(1, b"module"), b"\xff", message(1, b"m")[:1]])
def test_what_is_no_compiled_program_is_said(program: bytes) -> None:
    with pytest.raises(ValueError, match=r"no buffer assignment|ends in the middle"):
        buffers_of(program)
