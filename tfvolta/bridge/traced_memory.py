"""What the step of a running fit holds at its worst moment, from the trace that it runs; nothing is traced for it."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Optional

from tfvolta.bridge import graphs
from tfvolta.bridge.layer_calls import CallRecord
from tfvolta.bridge.step_graph import StepReader
from tfvolta.footprint.liveness import peak_of
from tfvolta.footprint.pool import pooled_peak
from tfvolta.footprint.step import Step

# Of the tensors of a trace, so many may have a size that is known in training only.
_UNKNOWN = 0.01


@dataclasses.dataclass(frozen=True)
class TracedMemory:
    """What a trace says.

    Attributes:
        held: Bytes of the tensors at the worst moment of the step, without variables; None where it cannot be said.
        pooled: What TensorFlow's own allocator hands out for them; None where it is not asked for.
        step: What was read, for the scratch memory of its convolutions.
        seconds: What reading it has cost.
        reason: Why ``held`` is None.
    """

    held: Optional[int] = None
    pooled: Optional[int] = None
    step: Optional[Step] = None
    seconds: float = 0.0
    reason: str = ""


def traced_memory(model: Any, rows: Optional[int], resident: Optional[int] = None) -> TracedMemory:
    """Reads the trace of a model's train function.

    Args:
        model: It has trained a step.
        rows: Of one replica's batch, for tensors whose first dimension the trace leaves open; None where not known.
        resident: Bytes in use between two steps, with which TensorFlow's own allocator begins; None where another one
            has the memory.
    """
    started = time.perf_counter()
    functions = graphs.outermost(getattr(model, "train_function", None))
    traces = functions[0]._list_all_concrete_functions() if functions else []
    if not traces:
        return TracedMemory(reason="the step was run eagerly, or there is no trace of it")
    if _is_chosen_later(traces[-1].graph):
        return TracedMemory(reason="the trace leaves the choice of a recurrent layer's kernel to the run")
    step = StepReader(CallRecord(lambda layer: False), {}, rows).read(traces[-1].graph)
    if step.unknown > _UNKNOWN * len(step.sizes):
        reason = f"{step.unknown} of {len(step.sizes)} tensors have a size that the trace leaves open"
        return TracedMemory(seconds=time.perf_counter() - started, reason=reason)
    pooled = None if resident is None else pooled_peak(step, resident)
    return TracedMemory(peak_of(step).size, pooled, step, time.perf_counter() - started)


def _is_chosen_later(graph: Any) -> bool:
    """Whether grappler takes one of several functions, by the device that runs them, after the trace."""
    return any("api_implements" in function.attr for function in graph.as_graph_def().library.function)
