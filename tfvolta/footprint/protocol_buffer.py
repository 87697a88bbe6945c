"""The fields of a serialized protocol buffer, for messages of which TensorFlow's wheel has no Python class.

Source: https://protobuf.dev/programming-guides/encoding; field numbers are part of a format and do not change.
"""

from __future__ import annotations

from typing import Iterator, Union

Value = Union[int, memoryview]
_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5


def fields(message: Union[bytes, memoryview]) -> Iterator[tuple[int, Value]]:
    """Numbers and values of a message's fields; what is no whole number is a view of the message, not a copy.

    Raises:
        ValueError: The message is cut off or no protocol buffer.
    """
    view = memoryview(message)
    position, end = 0, len(view)
    while position < end:
        key, position = _varint(view, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(view, position)
            yield number, value
            continue
        if kind == _DELIMITED:
            size, position = _varint(view, position)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field of wire type {kind}")
        if position + size > end:
            raise ValueError("the message ends in the middle of a field")
        yield number, view[position : position + size]
        position += size


def messages(message: Union[bytes, memoryview], number: int) -> Iterator[memoryview]:
    """The values of one field that are messages, texts or bytes."""
    return (value for found, value in fields(message) if found == number and isinstance(value, memoryview))


def text(message: Union[bytes, memoryview], number: int) -> str:
    """The last text of a field; empty where it has none."""
    found = ""
    for value in messages(message, number):
        found = bytes(value).decode("utf-8", "replace")
    return found


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message):
            raise ValueError("the message ends in the middle of a number")
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
