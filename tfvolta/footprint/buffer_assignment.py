"""XLA's own memory analysis: the buffers that it has assigned to a compiled step.

XLA hands the compiled program out as a serialized ``xla.HloProto``, whose field 3 is its ``BufferAssignmentProto``. The
few fields that are needed are read here, since TensorFlow's wheel has no Python class for them.
Source: xla/service/hlo.proto of TensorFlow 2.15 and 2.21; field numbers are part of the format and do not change.
"""

from __future__ import annotations

import dataclasses
from typing import Iterator, Union

_BUFFER_ASSIGNMENT = 3  # of HloProto
_ALLOCATION = 3  # of BufferAssignmentProto
# Of BufferAllocationProto.
_SIZE, _THREAD_LOCAL, _PARAMETER, _LIVE_OUT, _CONSTANT = 2, 3, 5, 7, 12


@dataclasses.dataclass(frozen=True)
class Buffers:
    """Bytes that a compiled step takes.

    Attributes:
        parameters: What it is called with: variables and the batch. The step writes updates over them.
        results: Results that lie in no parameter.
        temporaries: Everything in between, as one block.
        constants: Constants of the program.
    """

    parameters: int
    results: int
    temporaries: int
    constants: int

    @property
    def total(self) -> int:
        """All of them, which are held together while the step runs."""
        return self.parameters + self.results + self.temporaries + self.constants


def buffers_of(program: bytes) -> Buffers:
    """Reads a serialized HloProto.

    Raises:
        ValueError: It has no buffer assignment: it was not compiled.
    """
    sums = {"parameters": 0, "results": 0, "temporaries": 0, "constants": 0}
    found = False
    for number, assignment in _fields(program):
        if number != _BUFFER_ASSIGNMENT or not isinstance(assignment, bytes):
            continue
        found = True
        for inner, allocation in _fields(assignment):
            if inner == _ALLOCATION and isinstance(allocation, bytes):
                values = dict(_fields(allocation))
                sums[_kind(values)] += 0 if values.get(_THREAD_LOCAL) else int(values.get(_SIZE, 0))
    if not found:
        raise ValueError("the program has no buffer assignment")
    return Buffers(**sums)


def _kind(values: dict[int, Union[int, bytes]]) -> str:
    if values.get(_PARAMETER):
        return "parameters"
    if values.get(_CONSTANT):
        return "constants"
    return "results" if values.get(_LIVE_OUT) else "temporaries"


def _fields(message: bytes) -> Iterator[tuple[int, Union[int, bytes]]]:
    """Numbers and values of a protocol buffer's fields."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield number, value
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of wire type {kind}")
        yield number, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
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
