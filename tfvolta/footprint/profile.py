"""What a profile of TensorFlow holds about memory: the programs that XLA has compiled, and what allocators did.

A profile is a serialized ``XSpace``. Its plane ``/host:metadata`` has every program that is loaded, also those that
were compiled long before the profile began, each as an ``xla.HloProto`` with its buffer assignment.
Source: tsl/profiler/protobuf/xplane.proto; xla/backends/profiler/cpu/metadata_collector.cc;
``XlaDebugInfoManager`` in xla/service/xla_debug_info_manager.cc; ``BFCAllocator::AddTraceMe`` in bfc_allocator.cc.
"""

from __future__ import annotations

import struct
from typing import Iterator, Mapping, Optional, Union

from tfvolta.footprint.protocol_buffer import Value, fields, messages, text

Statistic = Union[int, float, str]

_METADATA_PLANE = "/host:metadata"
_PROGRAM = "Hlo Proto"
_MEMORY_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_PLANE = 1  # of XSpace
_NAME = 2  # of XPlane, of XEventMetadata and of XStatMetadata
_LINE, _EVENTS, _STATISTICS = 3, 4, 5  # of XPlane: lines, and the names of events and of their statistics
_MAP_KEY, _MAP_VALUE = 1, 2
_LINE_EVENT = 4
_EVENT_KIND, _EVENT_STATISTIC = 1, 4
_METADATA_STATISTIC = 5  # of XEventMetadata
# Of XStat: which statistic, and the value by its type.
_OF, _DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BYTES, _REFERENCE = 1, 2, 3, 4, 5, 6, 7


def programs(space: bytes) -> Iterator[tuple[str, memoryview]]:
    """The name of each loaded program, and its serialized ``xla.HloProto``.

    Raises:
        ValueError: That is no profile.
    """
    for plane in messages(space, _PLANE):
        if text(plane, _NAME) != _METADATA_PLANE:
            continue
        wanted = {number for number, name in _names(plane, _STATISTICS).items() if name == _PROGRAM}
        for entry in messages(plane, _EVENTS):
            for metadata in messages(entry, _MAP_VALUE):
                for statistic in messages(metadata, _METADATA_STATISTIC):
                    values = dict(fields(statistic))
                    program = values.get(_BYTES)
                    if values.get(_OF) in wanted and isinstance(program, memoryview):
                        yield text(metadata, _NAME), program


def memory_events(space: bytes) -> list[dict[str, Statistic]]:
    """Statistics by name of every allocation and release in a profile, in the order of each thread.

    Raises:
        ValueError: That is no profile.
    """
    found = []
    for plane in messages(space, _PLANE):
        kinds = {number for number, name in _names(plane, _EVENTS).items() if name in _MEMORY_EVENTS}
        if not kinds:
            continue
        names = _names(plane, _STATISTICS)
        for line in messages(plane, _LINE):
            for event in messages(line, _LINE_EVENT):
                if dict(fields(event)).get(_EVENT_KIND) in kinds:
                    found.append(dict(_statistics(event, names)))
    return found


def _statistics(event: memoryview, names: Mapping[int, str]) -> Iterator[tuple[str, Statistic]]:
    for statistic in messages(event, _EVENT_STATISTIC):
        values = dict(fields(statistic))
        value = _value(values, names)
        number = values.get(_OF, 0)
        if value is not None and isinstance(number, int):
            yield names.get(number, ""), value


def _value(values: Mapping[int, Value], names: Mapping[int, str]) -> Optional[Statistic]:
    for number, value in values.items():
        if number == _DOUBLE and isinstance(value, memoryview):
            return float(struct.unpack("<d", value)[0])
        if number == _TEXT and isinstance(value, memoryview):
            return bytes(value).decode("utf-8", "replace")
        if number == _REFERENCE and isinstance(value, int):
            return names.get(value, "")
        if number == _UNSIGNED and isinstance(value, int):
            return value
        if number == _SIGNED and isinstance(value, int):
            return value - 2**64 if value >= 2**63 else value
    return None


def _names(plane: memoryview, number: int) -> dict[int, str]:
    """The names in one of a plane's tables by their numbers."""
    found = {}
    for entry in messages(plane, number):
        pair = dict(fields(entry))
        key, value = pair.get(_MAP_KEY, 0), pair.get(_MAP_VALUE)
        if isinstance(key, int) and isinstance(value, memoryview):
            found[key] = text(value, _NAME)
    return found
