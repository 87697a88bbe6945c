"""XLA's own memory analysis: the buffers that it has assigned to a compiled step.

XLA hands the compiled program out as a serialized ``xla.HloProto``, whose field 3 is its ``BufferAssignmentProto``. The
few fields that are needed are read here, since TensorFlow's wheel has no Python class for them.
Source: xla/service/hlo.proto of TensorFlow 2.15 and 2.21; field numbers are part of the format and do not change.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Union

from tfvolta.footprint.protocol_buffer import Value, fields, messages

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


def buffers_of(program: Union[bytes, memoryview]) -> Buffers:
    """Reads a serialized HloProto.

    Raises:
        ValueError: It has no buffer assignment: it was not compiled.
    """
    sums = {"parameters": 0, "results": 0, "temporaries": 0, "constants": 0}
    found = False
    for assignment in messages(program, _BUFFER_ASSIGNMENT):
        found = True
        for allocation in messages(assignment, _ALLOCATION):
            values = dict(fields(allocation))
            size = values.get(_SIZE, 0)
            sums[_kind(values)] += size if isinstance(size, int) and not values.get(_THREAD_LOCAL) else 0
    if not found:
        raise ValueError("the program has no buffer assignment")
    return Buffers(**sums)


def _kind(values: Mapping[int, Value]) -> str:
    if values.get(_PARAMETER):
        return "parameters"
    if values.get(_CONSTANT):
        return "constants"
    return "results" if values.get(_LIVE_OUT) else "temporaries"
