"""Operations of a part of a graph: noted while it is made, and what touches state not made again when it is repeated.

Python code that is run a second time in one graph makes its operations a second time. Those that draw random numbers or
change variables must not be made again: a repetition has to compute with the same numbers, and a step changes a
variable once. So what such operations returned in the first pass is returned in the second one too.

Source: ``FuncGraph._create_op_internal`` in tensorflow/python/framework/func_graph.py, through which every operation of
a traced function is made.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from typing import Any, Callable, Iterator, Optional

from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph

# Random numbers out of a state that TensorFlow hides, and out of one that a generator's variable holds.
_DRAWS = frozenset(
    {
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "Multinomial",
        "RngReadAndSkip",
        "RngSkip",
        "StatefulUniform",
        "StatefulUniformInt",
        "StatefulUniformFullInt",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
    }
)
_ASSIGNS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_READS = frozenset({"ReadVariableOp"})
_GATHERS = frozenset({"ResourceGather", "ResourceGatherNd"})
# Stateful by name only: made again, they compute the same.
_REPEATABLE = frozenset(
    {
        "VariableShape",
        "DisableCopyOnRead",
        "VarIsInitializedOp",
        "CudnnRNN",
        "CudnnRNNV2",
        "CudnnRNNV3",
        "CudnnRNNBackprop",
        "CudnnRNNBackpropV2",
        "CudnnRNNBackpropV3",
        "NoOp",
        "Placeholder",
    }
)
_ONCE = frozenset({"Assert"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "While", "If", "Case", "SymbolicGradient"})
# A dropout compares uniform numbers with its rate: the mask takes an eighth of the bytes of the numbers or less.
_COMPARISONS = frozenset({"GreaterEqual", "Greater", "LessEqual", "Less"})
_ARITHMETIC = frozenset({"Mul", "AddV2", "Add", "Sub", "Cast"})

_WORDS = (
    (("PyFunc", "EagerPyFunc", "PyFuncStateless"), "runs Python code"),
    (("Print", "PrintV2"), "prints"),
    (("WriteSummary", "WriteScalarSummary", "WriteHistogramSummary", "WriteRawProtoSummary"), "writes a summary"),
)

_threads = threading.local()
_own_create: Callable[..., Any] = FuncGraph._create_op_internal


def install() -> None:
    """Lets this module see the operations of traced functions; without a pass under way that costs one look-up."""
    if FuncGraph._create_op_internal is not _create:
        FuncGraph._create_op_internal = _create


def _create(self: Any, op_type: str, inputs: Any, *arguments: Any, **keywords: Any) -> Any:
    """Replaces ``FuncGraph._create_op_internal``."""
    passes: list[Any] = getattr(_threads, "passes", [])
    if not passes:
        return _own_create(self, op_type, inputs, *arguments, **keywords)
    former = passes[-1].instead_of(self, op_type, inputs)
    if former is not None:
        return former
    made = _own_create(self, op_type, inputs, *arguments, **keywords)
    for each in passes:
        each.made(self, made)
    return made


def is_under_way() -> bool:
    """Whether this thread is inside of a pass; a segment inside of another one is part of it."""
    return bool(getattr(_threads, "passes", []))


@contextlib.contextmanager
def during(one_pass: Any) -> Iterator[None]:
    """Tells a pass of every operation that this thread makes; replicas trace in threads of their own."""
    passes = _threads.__dict__.setdefault("passes", [])
    passes.append(one_pass)
    try:
        yield
    finally:
        passes.remove(one_pass)


class Watch:
    """A list of the operations that one graph gets."""

    def __init__(self, graph: Any):
        self.graph = graph
        self.operations: list[Any] = []

    def instead_of(self, graph: Any, kind: str, inputs: Any) -> Optional[Any]:
        """Nothing is left out."""
        del graph, kind, inputs
        return None

    def made(self, graph: Any, operation: Any) -> None:
        """Takes an operation in."""
        if graph is self.graph:
            self.operations.append(operation)


class FirstPass(Watch):
    """What a part of a graph did in its first pass.

    Attributes:
        draws: Operations that drew random numbers, in their order.
        masks: Comparisons of these numbers, in their order.
        reads: Reads of variables by type and the name of their handle.
        assigns: Changes of variables, likewise.
        others: Operations that must be there once, by type.
        fault: Why it cannot be repeated; empty where it can.
    """

    def __init__(self, graph: Any):
        super().__init__(graph)
        self.draws: list[Any] = []
        self.masks: list[Any] = []
        self.reads: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
        self.assigns: dict[tuple[str, str], list[Any]] = collections.defaultdict(list)
        self.others: dict[str, list[Any]] = collections.defaultdict(list)
        self.fault = ""
        self._random: set[str] = set()

    def made(self, graph: Any, operation: Any) -> None:
        """Takes an operation in, and sorts it by what a repetition has to do with it."""
        kind = operation.type
        if graph is not self.graph:
            self._inside(kind, operation)
            return
        super().made(graph, operation)
        names = [tensor.name for tensor in operation.inputs]
        if kind in _DRAWS:
            self.draws.append(operation)
            self._random.update(tensor.name for tensor in operation.outputs)
        elif kind in _READS | _GATHERS:
            self.reads[kind, names[0]].append(operation)
        elif kind in _ASSIGNS:
            self.assigns[kind, names[0]].append(operation)
        elif kind in _ONCE:
            self.others[kind].append(operation)
        elif kind in _COMPARISONS and names[0] in self._random:
            self.masks.append(operation)
        elif kind in _ARITHMETIC and names[0] in self._random:
            self._random.update(tensor.name for tensor in operation.outputs)
        elif kind in _CALLS:
            for inner in _called(self.graph, operation):
                self._inside(inner, None)
        elif operation.op_def.is_stateful and kind not in _REPEATABLE:
            self._cannot(kind)

    def _inside(self, kind: str, operation: Optional[Any]) -> None:
        """An operation of a loop, a branch or a function of its own: it can be repeated as a whole only."""
        if kind in _DRAWS:
            self.fault = self.fault or f"draws random numbers inside of a loop, a branch or a function ({kind})"
        elif kind in _ASSIGNS:
            self.fault = self.fault or f"changes a variable inside of a loop, a branch or a function ({kind})"
        elif kind not in _READS | _GATHERS | _REPEATABLE | _CALLS | _ONCE and _is_stateful(kind, operation):
            self._cannot(kind)

    def _cannot(self, kind: str) -> None:
        said = next((words for kinds, words in _WORDS if kind in kinds), "")
        if not said:
            said = "exchanges data with other replicas" if "Collective" in kind or "Nccl" in kind else "keeps a state"
        self.fault = self.fault or f"{said} ({kind})"


class SecondPass(Watch):
    """A repetition: what the first pass did to state is not done again, and its results are used.

    Variables are not read again either. TensorFlow's graph optimiser drops the edges that make an assignment wait for a
    read, so that a late read could see the weights of the next step.

    Args:
        first: The first pass.
        later: Makes a tensor depend on what comes before the repetition: weights, so that copies of them in half
            precision can be dropped in between, and small states such as the seed of random numbers.
        copies: Whether that copies the tensor, which is not worth it for weights.
    """

    def __init__(self, first: FirstPass, later: Callable[[Any], Any], copies: bool):
        super().__init__(first.graph)
        self.first = first
        self.reused: list[Any] = []
        self._later = later
        self._copies = copies
        self._places: collections.Counter[Any] = collections.Counter()
        self._random: set[str] = set()

    def instead_of(self, graph: Any, kind: str, inputs: Any) -> Optional[Any]:
        """The operation of the first pass that stands for a new one; None for one that is to be made."""
        if graph is not self.graph:
            return None
        if kind in _DRAWS:
            found = self._next(kind, self.first.draws)
            self._random.update(tensor.name for tensor in found.outputs)
            return self._delayed(found)
        if kind in _ONCE:
            return self._next(kind, self.first.others[kind])
        if kind in _READS | _GATHERS | _ASSIGNS:
            return self._of_a_variable(kind, str(self.graph.capture(inputs[0]).name))
        if kind in _COMPARISONS and self.graph.capture(inputs[0]).name in self._random:
            found = self._next("masks", self.first.masks)
            self.reused += found.outputs
            return found
        return None

    def _of_a_variable(self, kind: str, handle: str) -> Optional[Any]:
        if kind in _ASSIGNS:
            return self._next((kind, handle), self.first.assigns.get((kind, handle), []))
        known = self.first.reads.get((kind, handle), [])
        found = self._next((kind, handle), known, repeat=kind in _READS)
        if kind in _READS:
            return self._delayed(found)
        self.reused += found.outputs
        return found

    def made(self, graph: Any, operation: Any) -> None:
        """Takes an operation in, and follows random numbers to the comparison that makes a mask."""
        super().made(graph, operation)
        if graph is self.graph and operation.type in _ARITHMETIC and operation.inputs[0].name in self._random:
            self._random.update(tensor.name for tensor in operation.outputs)

    def _next(self, key: Any, operations: list[Any], repeat: bool = False) -> Any:
        place = self._places[key]
        self._places[key] += 1
        if operations and (repeat or place < len(operations)):
            return operations[min(place, len(operations) - 1)]
        raise RuntimeError(f"the second pass of a part differs from the first one at {key}")

    def _delayed(self, operation: Any) -> Any:
        """The operation with its result behind a barrier: equal operations on it would become one again."""
        value = operation.outputs[0]
        small = value.shape.rank is not None and value.shape.rank <= 1
        delays = small or (operation.type in _READS and not self._copies)
        return _Stand(operation, [self._later(value)]) if delays else operation


class _Stand:
    """An operation with other results; what records its gradient asks for its attributes."""

    def __init__(self, operation: Any, outputs: list[Any]):
        self._operation = operation
        self.outputs = outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)


def _is_stateful(kind: str, operation: Optional[Any]) -> bool:
    definition = operation.op_def if operation is not None else op_def_registry.get(kind)
    return definition is not None and bool(definition.is_stateful)


def _called(graph: Any, operation: Any) -> Iterator[str]:
    """Types of the operations of the functions that an operation calls, those that they call included."""
    pending = [value.func.name for value in operation.node_def.attr.values() if value.func.name]
    pending += [function.name for value in operation.node_def.attr.values() for function in value.list.func]
    seen: set[Any] = set()
    while pending:
        name = pending.pop()
        function = None if name in seen else graph._get_function(name)
        seen.add(name)
        if function is None:
            continue
        definition = getattr(function, "function_def", None) or function.definition
        for node in definition.node_def:
            yield node.op
            pending += [value.func.name for value in node.attr.values() if value.func.name]
