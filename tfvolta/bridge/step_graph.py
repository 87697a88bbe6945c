"""A traced train function as plain operations, with functions that it calls put in their place."""

from __future__ import annotations

import heapq
import math
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.layer_calls import CallRecord, function_graph
from tfvolta.footprint.operation_kinds import NOTHING
from tfvolta.footprint.recurrent_kernel import reserve_values, workspace_values
from tfvolta.footprint.step import Convolution, Step, StepOperation

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_RECURRENT = "CudnnRNN"
_RESERVE = 3  # position of the reserved space among the results of CudnnRNN, V2 and V3


class StepReader:
    """Reads one graph.

    Attributes:
        operations: Those read so far.
        sizes: Bytes of each tensor.
        unknown: Tensors of a size that is not known.
        compiled: Operations inside functions that XLA compiles.
        convolutions: Convolutions of the forward pass.
        constants: Bytes of tensors that grappler makes constants of.
    """

    def __init__(self, record: CallRecord, paths: dict[int, str], rows: Optional[int] = None) -> None:
        """Makes an empty reader.

        Args:
            record: The layer calls of the trace.
            paths: Paths of the layers by their ids.
            rows: First dimension of tensors of which no other is open; they are unknown where None.
        """
        self.operations: list[StepOperation] = []
        self.sizes: list[int] = []
        self.unknown = 0
        self.compiled: set[int] = set()
        self.convolutions: list[Convolution] = []
        self.constants = 0
        self._record = record
        self._rows = rows
        self._layers = list(paths.values())
        self._number_of = {layer: number for number, layer in enumerate(paths)}

    def read(self, graph: Any) -> Step:
        """The step of a train function's graph."""
        self._visit(graph, {}, None, False)
        layers = tuple(self._layers)
        compiled, convolutions = frozenset(self.compiled), tuple(self.convolutions)
        sizes = tuple(self.sizes)
        return Step(tuple(self.operations), sizes, layers, self.unknown, compiled, convolutions, self.constants)

    def _visit(self, graph: Any, given: dict[int, int], layer: Optional[int], is_compiled: bool) -> dict[int, int]:
        """Reads a graph whose arguments are the given tensors; the numbers of its tensors by their ids."""
        numbers = dict(given)
        done: dict[str, tuple[int, ...]] = {}
        owners = self._record.owners(getattr(graph, "tfvolta_original", graph))
        for position, operation in _needed(graph):
            owner = owners[position]
            inside = self._number_of.get(id(owner), layer)
            before = tuple(number for waited in operation.control_inputs for number in done.get(waited.name, ()))
            first = len(self.operations)
            inner = self._called(graph, operation)
            if inner is not None:
                self._inline(operation, inner, numbers, inside, is_compiled)
                done[operation.name] = tuple(range(first, len(self.operations)))[-1:]
                continue
            self._add(operation, numbers, before, inside, is_compiled)
            done[operation.name] = (first,)
        return numbers

    def _called(self, graph: Any, operation: Any) -> Optional[Any]:
        if operation.type not in _CALLS:
            return None
        return function_graph(graph, operation.node_def.attr["f"].func.name, operation)

    def _inline(
        self, operation: Any, inner: Any, numbers: dict[int, int], layer: Optional[int], is_compiled: bool
    ) -> None:
        given = {id(argument): numbers[id(tensor)] for argument, tensor in zip(inner.inputs, operation.inputs)}
        must_compile = "_XlaMustCompile" in operation.node_def.attr and operation.node_def.attr["_XlaMustCompile"].b
        found = self._visit(inner, given, layer, is_compiled or bool(must_compile))
        for result, tensor in zip(inner.outputs, operation.outputs):
            numbers[id(tensor)] = found[id(result)]

    def _add(
        self, operation: Any, numbers: dict[int, int], before: tuple[int, ...], layer: Optional[int], is_compiled: bool
    ) -> None:
        inputs: tuple[int, ...] = ()
        outputs: tuple[int, ...] = ()
        kind = "NoOp"
        # The placeholder of an argument is the caller's tensor.
        if operation.type != "Placeholder" or id(operation.outputs[0]) not in numbers:
            kind = operation.type
            inputs = tuple(numbers[id(tensor)] for tensor in operation.inputs)
            outputs = tuple(self._tensor(operation.type, tensor, numbers) for tensor in operation.outputs)
            if kind == "Transpose" and (source := _undone(operation)) is not None and id(source) in numbers:
                kind, inputs = "Identity", (numbers[id(source)], *inputs[1:])
            if not is_compiled and _is_one_value(operation):
                self.constants += self.sizes[outputs[0]]
                self.sizes[outputs[0]] = 0
            if kind == "Conv2D" and operation.inputs[1].shape.is_fully_defined():
                self.convolutions.append(_convolution(operation))
        if is_compiled:
            self.compiled.add(len(self.operations))
        scratch = _workspace_bytes(operation) if kind.startswith(_RECURRENT) else 0
        self.operations.append(StepOperation(kind, inputs, outputs, before, layer, scratch))

    def _tensor(self, kind: str, tensor: Any, numbers: dict[int, int]) -> int:
        numbers[id(tensor)] = len(self.sizes)
        # The last result of a fused batch normalisation is cuDNN's own note: small, and of a size that no shape tells.
        is_note = kind.startswith("FusedBatchNorm") and not tensor.shape.is_fully_defined()
        self.sizes.append(0 if kind in NOTHING or is_note else self._size(tensor))
        return numbers[id(tensor)]

    def _size(self, tensor: Any) -> int:
        if tensor.dtype in (tf.resource, tf.variant, tf.string):
            return 0
        shape = self._known(tensor.shape)
        if shape is None:
            kept = reserve_bytes(tensor)
            self.unknown += kept is None
            return kept or 0
        return int(math.prod(shape)) * int(tensor.dtype.size)

    def _known(self, shape: Any) -> Optional[list[int]]:
        if shape.rank is None:
            return None
        sizes = shape.as_list()
        if sizes and sizes[0] is None and self._rows is not None:
            sizes[0] = self._rows
        return None if None in sizes else sizes


def _convolution(operation: Any) -> Convolution:
    shape = tuple(operation.inputs[1].shape.as_list())
    strides = tuple(int(stride) for stride in operation.get_attr("strides"))
    return Convolution(shape, strides, str(operation.get_attr("T").name))


def reserve_bytes(tensor: Any) -> Optional[int]:
    """Bytes of what cuDNN keeps of a recurrent layer, which no shape tells; None for other tensors.

    Its note for the host, the last result, is 0.
    """
    operation = tensor.op
    if not operation.type.startswith(_RECURRENT) or "Backprop" in operation.type or tensor.value_index < _RESERVE:
        return None
    known = _steps_and_units(operation)
    if tensor.value_index > _RESERVE or known is None:
        return 0 if tensor.value_index > _RESERVE else None
    return reserve_values(operation.get_attr("rnn_mode").decode(), *known) * int(tensor.dtype.size)


def _workspace_bytes(operation: Any) -> int:
    """Bytes that cuDNN's operation of a recurrent layer holds while it runs; 0 where its shapes are open."""
    known = _steps_and_units(operation)
    return 0 if known is None else workspace_values(*known) * int(operation.inputs[0].dtype.size)


def _steps_and_units(operation: Any) -> Optional[tuple[int, int]]:
    """Steps times sequences, and units, by the sequences and the first state that cuDNN is given."""
    sequence, state = operation.inputs[0].shape, operation.inputs[1].shape
    if not (sequence.is_fully_defined() and state.is_fully_defined()):
        return None
    return int(sequence[0]) * int(sequence[1]), int(state[-1])


def _is_one_value(operation: Any) -> bool:
    """Whether grappler makes a constant of a result: one value in a shape that is known, of whatever size.

    Source: ``MaterializeConstantValuedNode`` in tensorflow/core/grappler/optimizers/constant_folding.cc.
    """
    if operation.type not in ("Fill", "ZerosLike", "OnesLike") or not operation.outputs[0].shape.is_fully_defined():
        return False
    return bool(operation.type != "Fill" or operation.inputs[1].op.type == "Const")


def _undone(operation: Any) -> Optional[Any]:
    """What a transposition gives back where it undoes another one: grappler takes both out; None elsewhere.

    Source: ``RemoveIdentityTranspose`` in tensorflow/core/grappler/optimizers/arithmetic_optimizer.cc.
    """
    former = operation.inputs[0].op
    while former.type == "Identity":
        former = former.inputs[0].op
    if former.type != "Transpose":
        return None
    first, second = (tf.get_static_value(each.inputs[1]) for each in (former, operation))
    if first is None or second is None or list(first[second]) != list(range(len(first))):
        return None
    return former.inputs[0]


def _needed(graph: Any) -> list[tuple[int, Any]]:
    """Operations that lead to a graph's results or have effects, each behind those that it needs, with its position.

    The gradient of a loop gives the loop inputs that were made after it.
    """
    position = {operation: number for number, operation in enumerate(graph.get_operations())}
    before: dict[Any, set[Any]] = {}
    pending = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    while pending:
        operation = pending.pop()
        if operation not in before:
            before[operation] = {tensor.op for tensor in operation.inputs} | set(operation.control_inputs)
            pending.extend(before[operation])
    after: dict[Any, list[Any]] = {}
    for operation, earlier in before.items():
        for needed in earlier:
            after.setdefault(needed, []).append(operation)
    waiting = {operation: len(earlier) for operation, earlier in before.items()}
    ready = [position[operation] for operation, count in waiting.items() if not count]
    heapq.heapify(ready)
    operations = graph.get_operations()
    ordered = []
    while ready:
        number = heapq.heappop(ready)
        ordered.append((number, operations[number]))
        for later in after.get(operations[number], ()):
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, position[later])
    return ordered
