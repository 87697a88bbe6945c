"""Programs and allocations in profiles that are put together by hand."""

from __future__ import annotations

import struct
from typing import Union

import pytest

from tests.pure.test_buffer_assignment import PROGRAM, message, number
from tfvolta.footprint.buffer_assignment import Buffers, buffers_of
from tfvolta.footprint.profile import memory_events, programs
from tfvolta.footprint.step_peak import GIB, StepPeak
from tfvolta.memory.fragments import fragments_of, why_unknown


def name(field: int, key: int, text: str, *more: bytes) -> bytes:
    """An entry of a plane's table of names."""
    return message(field, number(1, key) + message(2, number(1, key) + message(2, text.encode()) + b"".join(more)))


def statistic(key: int, value: Union[int, float, str, bytes]) -> bytes:
    if isinstance(value, float):
        return number(1, key) + b"\x11" + struct.pack("<d", value)
    if isinstance(value, int):
        return number(1, key) + number(4, value % 2**64)
    return number(1, key) + message(
        6 if isinstance(value, bytes) else 5, value if isinstance(value, bytes) else value.encode()
    )


NAMES = ["allocator_name", "fragmentation", "bytes_allocated", "bytes_available", "peak_bytes_in_use", "bytes_reserved"]


def allocation(**values: Union[int, float, str]) -> bytes:
    stats = b"".join(message(4, statistic(NAMES.index(key) + 1, value)) for key, value in values.items())
    return message(4, number(1, 9) + stats)


def space(*events: bytes) -> bytes:
    host = message(2, b"/host:CPU") + name(4, 9, "MemoryAllocation") + name(4, 8, "Something")
    host += b"".join(name(5, key + 1, text) for key, text in enumerate(NAMES))
    host += message(3, b"".join(events) + message(4, number(1, 8)))
    metadata = message(2, b"/host:metadata") + name(5, 1, "Hlo Proto") + name(5, 2, "Other")
    metadata += name(4, 20, "a_inference_run_step_740__.5(94)", message(5, statistic(1, PROGRAM)))
    metadata += name(4, 21, "another", message(5, statistic(2, b"no program")))
    return message(1, metadata) + message(1, host)


BUSY = {"allocator_name": "GPU_0_bfc", "fragmentation": 0.25, "bytes_allocated": 60, "bytes_available": 40}


def test_programs_by_name() -> None:
    ((found, program),) = programs(space())
    assert found == "a_inference_run_step_740__.5(94)"
    assert buffers_of(program).total == 3_000_001_578


def test_what_allocators_say() -> None:
    event = {**BUSY, "peak_bytes_in_use": 90, "bytes_reserved": -1}
    assert memory_events(space(allocation(**event))) == [event]


def test_a_profile_without_either_is_empty() -> None:
    assert list(programs(b"")) == [] and memory_events(b"") == []


@pytest.mark.parametrize("broken", [b"\xff", space()[:40], b"\x0b"])
def test_what_is_cut_off_is_said(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends in the middle|wire type"):
        list(programs(broken))


def test_the_pool_that_spoke_last_counts_and_others_do_not() -> None:
    events = [
        {**BUSY, "fragmentation": 0.9},
        {**BUSY, "peak_bytes_in_use": 90},
        {**BUSY, "allocator_name": "mklcpu"},
        {**BUSY, "allocator_name": "GPU_1_bfc", "fragmentation": float("nan")},
        {"allocator_name": "GPU_2_bfc"},
    ]
    (found,) = fragments_of(events).values()
    assert (found.device, found.share, found.limit_bytes, found.peak_bytes) == ("GPU:0", 0.25, 100, 90)
    assert found.allocator == "cuda_malloc_async" and "25.0 %" in str(found) and "cuda_malloc_async" in str(found)


@pytest.mark.parametrize(("share", "peak"), [(0.04, 95), (0.5, 40)])
def test_the_default_allocator_stays_where_nothing_is_gained(share: float, peak: int) -> None:
    (found,) = fragments_of([{**BUSY, "fragmentation": share, "peak_bytes_in_use": peak}]).values()
    assert found.allocator == "default" and "keep devices.allocator: default" in str(found)
    assert found.to_json()["advised_allocator"] == "default"


def test_why_a_pool_is_silent() -> None:
    assert "no blocks to count" in why_unknown("cuda_malloc_async")
    assert "told the profiler nothing" in why_unknown(None)


BUFFERS = Buffers(parameters=2 * GIB, results=0, temporaries=6 * GIB, constants=0)


def test_a_prediction_adds_what_stays_beside_the_step() -> None:
    peak = StepPeak.of_program("a_step", BUFFERS, variables=GIB)
    assert peak.predicted == 8 * GIB and str(peak).endswith("no measured peak")
    assert peak.to_json()["error_percent"] is None
    measured = peak.measured("GPU:0", resident=3 * GIB, first=20 * GIB, steady=8 * GIB)
    assert (measured.beside, measured.predicted) == (2 * GIB, 10 * GIB)
    found = measured.to_json()
    assert (found["error_percent"], found["first_step_error_percent"]) == (25.0, -50.0)
    assert "8.00 GiB measured on GPU:0: +25.0 %" in str(measured) and "20.00 GiB in the first step" in str(measured)


def test_fewer_variables_on_the_device_than_counted_take_nothing_away() -> None:
    peak = StepPeak.of_trace(held=5 * GIB, scratch=GIB, variables=2 * GIB).measured("GPU:0", GIB, None, 8 * GIB)
    assert peak.predicted == 8 * GIB and peak.to_json()["error_percent"] == 0.0
    assert "traced step" in str(peak) and "scratch 1.00 GiB" in str(peak)
