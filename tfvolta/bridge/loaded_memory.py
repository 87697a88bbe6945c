"""What XLA's buffer assignment says of the step that a running fit has compiled, without compiling it again.

XLA registers each program with its buffer assignment when it is compiled, for profilers, which write all that are
registered into a profile, whenever it is taken. So a profile of a moment between two steps has them, and costs writing
the program out once. Asking for the compiled program with ``experimental_get_compiler_ir`` compiles a second time.
Source: ``GpuExecutable::GpuExecutable`` in xla/service/gpu/gpu_executable.cc, ``CpuExecutable::CpuExecutable``;
xla/backends/profiler/cpu/metadata_collector.cc; tensorflow/compiler/jit/get_compiler_ir.cc.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge import graphs, xla_trial
from tfvolta.bridge.runtime import own_devices
from tfvolta.bridge.short_profile import ProfilerBusyError, short_profile
from tfvolta.footprint.buffer_assignment import Buffers, buffers_of
from tfvolta.footprint.profile import memory_events, programs

_PROBE = (64, 64)
_NOT_IN_NAMES = re.compile(r"\W+")


@dataclasses.dataclass(frozen=True)
class LoadedMemory:
    """What was found out about memory between two steps.

    Attributes:
        program: Name of the program that takes most of those that the train step has compiled; None without one.
        buffers: Its buffer assignment.
        programs: How many programs of the train step are loaded: one for each combination of shapes.
        events: What the allocators said when each GPU was asked for a little memory.
        seconds: What it cost.
        reason: Why there is no program.
        refused: Why no profile could be taken, so that there is nothing at all.
    """

    program: Optional[str] = None
    buffers: Optional[Buffers] = None
    programs: int = 0
    events: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    reason: str = ""
    refused: str = ""


def loaded_memory(model: Any) -> LoadedMemory:
    """Takes a profile of a moment and reads it; to be called while no step is being handed to the device."""
    started = time.perf_counter()
    names = [_as_program(name) for name in marked_names(model)]
    try:
        space = short_profile(_ask_allocators)
        loaded = [(name, program) for name, program in programs(space) if _is_one_of(name, names)]
        assigned = [(name, buffers) for name, program in loaded if (buffers := _buffers(program)) is not None]
        events = tuple(memory_events(space))
    except (ProfilerBusyError, OSError, ValueError, tf.errors.OpError) as error:  # a figure more, and no need
        refused = " ".join(str(error).split())[:300]
        return LoadedMemory(seconds=time.perf_counter() - started, reason=refused, refused=refused)
    name, largest = max(assigned, key=lambda pair: pair[1].total, default=(None, None))
    return LoadedMemory(
        name, largest, len(assigned), events, time.perf_counter() - started, _reason(names, len(loaded), largest)
    )


def marked_names(model: Any) -> list[str]:
    """Names of the traced functions of a model's train function that XLA compiles."""
    found = []
    for graph in graphs.traced_graphs(model):
        found += [name for name, function in graph._functions.items() if xla_trial.is_marked(function)]
    return list(dict.fromkeys(found))


def _ask_allocators() -> None:
    """Takes a little memory of each GPU, upon which its allocator describes itself."""
    for device in own_devices(tf.config.list_logical_devices("GPU")):
        with tf.device(device.name):
            tf.zeros(_PROBE)


def _as_program(name: str) -> str:
    """A function's name as XLA writes it."""
    return _NOT_IN_NAMES.sub("_", name).strip("_")


def _is_one_of(program: str, names: list[str]) -> bool:
    """Whether XLA made a program, such as ``a_inference_run_step_740__.5(94)``, of one of the functions."""
    return any(re.search(rf"(^|_){re.escape(name)}(?!\d)", program) for name in names)


def _buffers(program: memoryview) -> Optional[Buffers]:
    try:
        return buffers_of(program)
    except ValueError:  # of an executable that was read from a cache without its assignment
        return None


def _reason(names: list[str], loaded: int, largest: Optional[Buffers]) -> str:
    if largest is not None:
        return ""
    if not names:
        return "XLA does not compile this step"
    return "the compiled program has no buffer assignment" if loaded else "XLA has not registered the compiled step"
