"""The most memory that a step's tensors take at one time, from the order in which TensorFlow runs its operations.

TensorFlow runs what is ready first in, first out on a GPU, gives a tensor back when its last reader is done, and
writes a result over an input that nobody else needs.
Source: tensorflow/core/common_runtime/executor.cc, ``OpKernel::IsExpensive`` and ``forward_input_or_allocate_output``.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Optional

from tfvolta.footprint.operation_kinds import ELEMENTWISE, NOT_IN_PLACE, VIEWS
from tfvolta.footprint.step import Step


@dataclasses.dataclass(frozen=True)
class Peak:
    """The moment of a step in which its tensors take most memory.

    Attributes:
        size: Bytes of all tensors then, and of the scratch memory of the operation that runs.
        by_layer: Bytes by number of the layer that made the tensor; None for the loss, gradients and updates.
        operation: Number of the operation that runs.
    """

    size: int
    by_layer: dict[Optional[int], int]
    operation: int


class Memory:
    """Buffers that are held at the moment.

    Attributes:
        held: Their bytes.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.readers = [0] * len(step.sizes)
        for operation in step.operations:
            for tensor in operation.inputs:
                self.readers[tensor] += 1
        self.buffer = list(range(len(step.sizes)))  # of each tensor: the tensor whose memory it lies in
        self.pending: dict[int, int] = {}  # readers still to come, by buffer
        self.owner: dict[int, Optional[int]] = {}
        self.size_of: dict[int, int] = {}
        self.held = 0

    def start(self, number: int) -> list[int]:
        """Takes memory for an operation's results; those that it wrote over an input come out as released."""
        operation = self.step.operations[number]
        reused: Optional[int] = None
        if operation.outputs and operation.kind in ELEMENTWISE and operation.kind not in NOT_IN_PLACE:
            reused = self._reusable(operation.inputs, self.step.sizes[operation.outputs[0]])
        for position, tensor in enumerate(operation.outputs):
            size = self.step.sizes[tensor]
            if operation.kind in VIEWS and position < len(operation.inputs):
                root = self.buffer[operation.inputs[position]]
                self.buffer[tensor] = root
                if root in self.pending:
                    self.pending[root] += self.readers[tensor]
                continue
            self.pending[tensor] = self.readers[tensor]
            self.size_of[tensor] = size
            self.owner[tensor] = operation.layer
            if reused is not None and not position:
                self.size_of[reused] = 0
                self._moved(reused, tensor)
                continue
            self.held += size
            self._taken(tensor, size)
        return list(operation.outputs)

    def finish(self, number: int) -> None:
        """Gives back what nobody reads any more."""
        operation = self.step.operations[number]
        for tensor in operation.inputs:
            root = self.buffer[tensor]
            if root in self.pending:
                self.pending[root] -= 1
                self._release(root)
        for tensor in operation.outputs:
            self._release(self.buffer[tensor])

    def _release(self, root: int) -> None:
        if root in self.pending and self.pending[root] <= 0:
            self.held -= self.size_of.pop(root)
            del self.pending[root], self.owner[root]
            self._given(root)

    def _taken(self, tensor: int, size: int) -> None:
        """Memory was taken for a tensor."""

    def _moved(self, former: int, tensor: int) -> None:
        """A tensor was written over another one."""

    def _given(self, tensor: int) -> None:
        """The memory of a tensor was given back."""

    def _reusable(self, inputs: tuple[int, ...], size: int) -> Optional[int]:
        for tensor in inputs:
            root = self.buffer[tensor]
            if self.pending.get(root) == inputs.count(tensor) and self.size_of.get(root) == size and size:
                return root
        return None

    def by_layer(self) -> dict[Optional[int], int]:
        found: dict[Optional[int], int] = collections.defaultdict(int)
        for root, size in self.size_of.items():
            found[self.owner[root]] += size
        return dict(found)


def peak_of(step: Step) -> Peak:
    """The moment in which the step's tensors take most memory; variables are not among them."""
    memory, order = Memory(step), order_of(step)
    best, worst = 0, -1
    for position, number in enumerate(order):
        memory.start(number)
        if memory.held + step.operations[number].scratch > best:
            best, worst = memory.held + step.operations[number].scratch, position
        memory.finish(number)
    if worst < 0:
        return Peak(0, {}, 0)
    memory = Memory(step)  # once more up to there: what is held is not written down at every moment
    for number in order[:worst]:
        memory.start(number)
        memory.finish(number)
    memory.start(order[worst])
    by_layer = memory.by_layer()
    if scratch := step.operations[order[worst]].scratch:
        by_layer[None] = by_layer.get(None, 0) + scratch
    return Peak(best, by_layer, order[worst])


def order_of(step: Step) -> list[int]:
    """The order in which operations run: whatever is ready, first in first out."""
    maker = {tensor: number for number, operation in enumerate(step.operations) for tensor in operation.outputs}
    waiting = []
    next_of: list[list[int]] = [[] for _ in step.operations]
    for number, operation in enumerate(step.operations):
        before = {maker[tensor] for tensor in operation.inputs if tensor in maker} | set(operation.waits_for)
        before.discard(number)
        waiting.append(len(before))
        for earlier in before:
            next_of[earlier].append(number)
    ready = collections.deque(number for number, count in enumerate(waiting) if not count)
    order = []
    while ready:
        number = ready.popleft()
        order.append(number)
        for later in next_of[number]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    return order
