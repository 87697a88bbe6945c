"""What the bridges take and hand out about computing activations again: plain values, the same for every Keras."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Iterable, Iterator, Optional, Protocol

from tfvolta.footprint.layer import bytes_of

# Part of the names of the operations of second passes.
SCOPE = "tfvolta_recompute"
_PRODUCTS = ("MatMul", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2d", "Einsum", "CudnnRNN")
# The same bytes under another shape or name.
_SAME_BYTES = frozenset({"Reshape", "Identity", "Squeeze", "ExpandDims", "StopGradient"})
_OF_WEIGHTS = frozenset({"ReadVariableOp", "Const", "Placeholder"})


@dataclasses.dataclass(frozen=True)
class RecomputeRequest:
    """What to compute again; one of the first three is given.

    Attributes:
        layers: Classes, names or paths of layers, shell patterns.
        every: Blocks in a segment.
        budget_bytes: What activations may take at one time, on each replica.
        batch: Examples on each replica, for the budget; None where not known.
        refuse: Whether a named layer that turns out not to be repeatable while the step is traced is an error.
    """

    layers: tuple[str, ...] = ()
    every: Optional[int] = None
    budget_bytes: Optional[int] = None
    batch: Optional[int] = None
    refuse: bool = False


@dataclasses.dataclass
class Repetition:
    """What became of one call of a segment in the last trace.

    Attributes:
        fault: Why it is not run again; empty where it is.
        trace: The graph that it is part of.
        again: Whether its gradients were taken, which runs it again.
        products: Matrix products and convolutions of the first and of the second pass.
        kept: Shapes and types of the activations that its gradients use: those that are not kept in between.
        reused: Shapes and types of what is kept in their place, such as dropout masks.
    """

    fault: str = ""
    trace: int = 0
    again: bool = False
    products: tuple[int, int] = (0, 0)
    kept: tuple[tuple[tuple[Optional[int], ...], str], ...] = ()
    reused: tuple[tuple[tuple[Optional[int], ...], str], ...] = ()

    def repeated(self, first: Any, second: Any, after: Any) -> None:
        """Takes in the operations of both passes and of the gradients."""
        self.again = True
        self.products = _count(first.operations), _count(second.operations)
        self.kept = tuple(_shapes(_activations(second.operations, after.operations)))
        self.reused = tuple(_shapes(second.reused))

    def kept_bytes(self, batch: Optional[int]) -> int:
        """Bytes that plain training would keep and this one does not, while they are there."""
        return _bytes(self.kept, batch)

    def saved_bytes(self, batch: Optional[int]) -> int:
        """Bytes that are free between the two passes."""
        return self.kept_bytes(batch) - _bytes(self.reused, batch)


@dataclasses.dataclass
class SegmentState:
    """One segment of a model.

    Attributes:
        name: Its first and last layer, or its only one.
        layers: Paths of its layers.
        calls: Its calls in the traces of the train step.
    """

    name: str
    layers: tuple[str, ...]
    calls: list[Repetition] = dataclasses.field(default_factory=list)

    @property
    def fault(self) -> str:
        """Why it is not computed again; empty where it is, or nothing was traced."""
        return next((call.fault for call in self.latest if call.fault), "")

    @property
    def is_repeated(self) -> bool:
        """Whether its gradients ran it again."""
        return bool(self.latest) and all(call.again for call in self.latest)

    @property
    def latest(self) -> list[Repetition]:
        """Its calls in the last trace, on all replicas."""
        return [call for call in self.calls if call.trace == self.calls[-1].trace]


@dataclasses.dataclass(frozen=True)
class RecomputeState:
    """How a model computes activations again.

    Attributes:
        segments: What is computed again as one unit each.
        left_out: Layers that are not, each with the reason.
        said: How the cut was chosen, in a sentence.
    """

    segments: tuple[SegmentState, ...]
    left_out: dict[str, str]
    said: str


class Recomputing(Protocol):
    """The part of ``tfvolta.bridge.base.Bridge`` about activations that are computed again."""

    def recompute(self, model: Any, request: RecomputeRequest) -> RecomputeState:
        """Makes a model compute activations again from its next train step on, in place of an earlier request.

        Raises:
            BridgeError: A name matches nothing, a named layer cannot be computed again, or no cut fits the budget.
        """

    def recompute_state(self, model: Any) -> Optional[RecomputeState]:
        """How a model computes activations again; None where it does not."""

    def undo_recompute(self, model: Any) -> bool:
        """Makes a model keep its activations again; False where it does."""


def _count(operations: Iterable[Any]) -> int:
    return sum(any(word in operation.type for word in _PRODUCTS) for operation in operations)


def _activations(second: Iterable[Any], after: Iterable[Any]) -> Iterator[Any]:
    """Results of the second pass that gradients use; the same bytes once, and no weights."""
    own = {operation.name for operation in second}
    found: dict[str, Any] = {}
    for operation in after:
        for tensor in operation.inputs:
            base = tensor
            while base.op.type in _SAME_BYTES and len(base.op.inputs) and base.op.inputs[0].op.name in own:
                base = base.op.inputs[0]
            if base.op.name in own and not _is_weight(base):
                found[base.name] = base
    yield from found.values()


def _is_weight(tensor: Any) -> bool:
    operation = tensor.op
    while operation.type in ("Cast", "Identity", "Reshape") and len(operation.inputs):
        operation = operation.inputs[0].op
    return operation.type in _OF_WEIGHTS


def _shapes(tensors: Iterable[Any]) -> Iterator[tuple[tuple[Optional[int], ...], str]]:
    for tensor in tensors:
        if tensor.shape.rank is not None and (tensor.dtype.is_floating or tensor.dtype.is_bool):
            yield tuple(tensor.shape.as_list()), tensor.dtype.name


def _bytes(shapes: Iterable[tuple[tuple[Optional[int], ...], str]], batch: Optional[int]) -> int:
    """Bytes of tensors; a dimension that is not known counts as the batch."""
    return sum(
        bytes_of(tuple(batch or 1 if size is None else size for size in shape), dtype) for shape, dtype in shapes
    )


def megabytes(size: int) -> str:
    """A size for a sentence."""
    return f"{math.ceil(size / 2**20)} MiB" if abs(size) >= 10 * 2**20 else f"{size / 2**20:.2g} MiB"
