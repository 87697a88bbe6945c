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
    order = _Order()
    sources: dict[int, frozenset[int]] = {}
    operations: list[StepOperation] = []
    for number, operation in enumerate(step.operations):
        reads = _NONE.union(*(sources.get(tensor, frozenset((tensor,))) for tensor in operation.inputs))
        waits = order.waits_of(operation)
        is_compiled = number in step.compiled
        if not is_compiled or operation.kind not in FUSED_BY_XLA | VIEWS:
            inputs = tuple(sorted(reads)) if is_compiled else operation.inputs
            operations.append(dataclasses.replace(operation, inputs=inputs, waits_for=tuple(sorted(waits))))
            order.kept(number, operation.outputs)
            continue
        is_view = operation.kind in VIEWS
        held = () if is_view else tuple(tensor for tensor in operation.outputs if tensor in kept)
        if not held and not is_view and len(reads) > _MOST_SOURCES:
            held = operation.outputs
        for tensor in operation.outputs:
            sources[tensor] = frozenset((tensor,)) if tensor in held else reads
        if held:
            order.kept(number, held)
            changed = dataclasses.replace(
                operation, inputs=tuple(sorted(reads)), outputs=held, waits_for=tuple(sorted(waits))
            )
        else:
            order.inside(number, operation.outputs, reads, waits)
            changed = dataclasses.replace(operation, inputs=(), outputs=(), waits_for=())
        operations.append(changed)
    return dataclasses.replace(step, operations=tuple(operations))


class _Order:
    """What has to be done before something, by operations that are left: recomputation waits for gradients."""

    def __init__(self) -> None:
        self._makers: dict[int, int] = {}
        self._done: dict[int, frozenset[int]] = {}
        self._carried: dict[int, frozenset[int]] = {}

    def waits_of(self, operation: StepOperation) -> frozenset[int]:
        """Operations that have to be done before this one, besides those that make what it reads."""
        waited = [self._done.get(number, frozenset((number,))) for number in operation.waits_for]
        return _NONE.union(*waited, *(self._carried.get(tensor, _NONE) for tensor in operation.inputs))

    def kept(self, number: int, outputs: tuple[int, ...]) -> None:
        """An operation whose results are in memory."""
        for tensor in outputs:
            self._makers[tensor] = number

    def inside(self, number: int, outputs: tuple[int, ...], reads: frozenset[int], waits: frozenset[int]) -> None:
        """An operation that becomes part of those that read it: they wait for what it waits for."""
        makers = frozenset(self._makers[tensor] for tensor in reads if tensor in self._makers)
        self._done[number] = makers | waits
        for tensor in outputs:
            self._carried[tensor] = waits


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
