"""What XLA leaves in memory of a step that it compiles, as an estimate before it has compiled it.

XLA writes chains of element-wise operations into one kernel, so their results are in memory only where something that
is no such chain reads them: a matrix product, a convolution, a loop. What the backward pass needs of the others is
computed again from what is in memory.
"""

from __future__ import annotations

import dataclasses

from tfvolta.footprint.operation_kinds import FUSED_BY_XLA, REDUCTIONS, VIEWS
from tfvolta.footprint.step import Step, StepOperation

_NONE: frozenset[int] = frozenset()
# XLA does not duplicate a chain that reads more than this many tensors; it keeps a result in between.
_MOST_SOURCES = 12


def fused(step: Step) -> Step:
    """The step as XLA is expected to run it: the same operations without results that stay inside kernels."""
    kept = _kept(step)
    sources: dict[int, frozenset[int]] = {}
    operations: list[StepOperation] = []
    for number, operation in enumerate(step.operations):
        reads = _NONE.union(*(sources.get(tensor, frozenset((tensor,))) for tensor in operation.inputs))
        inside = number in step.compiled and operation.kind in FUSED_BY_XLA | VIEWS
        if not inside:
            operations.append(operation)
            if number in step.compiled:
                operations[-1] = dataclasses.replace(operation, inputs=tuple(sorted(reads)))
            continue
        held = tuple(tensor for tensor in operation.outputs if tensor in kept and operation.kind not in VIEWS)
        if not held and len(reads) > _MOST_SOURCES and operation.kind not in VIEWS:
            held = operation.outputs
        for tensor in operation.outputs:
            sources[tensor] = frozenset((tensor,)) if tensor in held else reads
        operations.append(dataclasses.replace(operation, inputs=tuple(sorted(reads)) if held else (), outputs=held))
    return dataclasses.replace(step, operations=tuple(operations))


def _kept(step: Step) -> set[int]:
    """Tensors that are in memory: read by something that XLA does not write into a chain, and results of sums."""
    kept: set[int] = set()
    views: dict[int, int] = {}
    for number, operation in enumerate(step.operations):
        if number in step.compiled and operation.kind in VIEWS and operation.inputs:
            for tensor, source in zip(operation.outputs, operation.inputs):
                views[tensor] = views.get(source, source)
        elif number not in step.compiled or operation.kind not in FUSED_BY_XLA:
            kept.update(views.get(tensor, tensor) for tensor in operation.inputs)
            kept.update(operation.outputs)
        elif operation.kind in REDUCTIONS:
            kept.update(operation.outputs)
    return kept
