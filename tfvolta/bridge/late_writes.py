"""A step writes nothing before it has computed everything: control dependencies in a traced train step.

TensorFlow orders the operations of a graph by data and by variable only. An optimiser's count needs nothing of the
batch, so it goes on by one although the step then runs out of memory; the weights of the last layers may be updated
while the gradients of the first are still being computed. Here every write that nothing else of the step waits for is
made to wait for everything that does not itself come after such a write: the whole forward and backward pass. A step
that fails in there leaves weights, slots, counts, averages, batch statistics and metrics as they were.

Writes that the computation itself waits for (the state of a seed that is drawn from twice) cannot be put off; they are
named, so that their variables can be put back.

Order by variable is TensorFlow's own: a use that was made after a write of the same variable comes after it.
Source: tensorflow/python/framework/auto_control_deps.py, which adds its edges when a function's trace ends.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Iterable, Iterator, Optional

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps, auto_control_deps_utils

# Writes of variables; operations of other resources (tables, stacks, iterators) are never put off.
_WRITES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply", "ResourceSparseApply")
SCATTERS = ("ResourceScatter", "ResourceStridedSliceAssign")
CALLS = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case")
_STATELESS_ORDER = "operations with effects and without a resource"  # TensorFlow chains them


@dataclasses.dataclass(frozen=True)
class Uses:
    """The resources that one operation uses.

    Attributes:
        read: Tensors of resources that it only reads.
        written: Others.
    """

    read: tuple[Any, ...]
    written: tuple[Any, ...]


@dataclasses.dataclass
class Ordered:
    """What was put off in one trace.

    Attributes:
        late: Writes that wait for all computation.
        early: Handles, as eager tensors where they are known, of variables whose writes cannot wait.
    """

    late: list[Any]
    early: list[Any]


def order_writes(operations: list[Any], deferrable: set[int], begun: Any, ended: Any) -> Ordered:
    """Puts off the writes of a step that is being traced.

    Args:
        operations: Operations of the step in the order in which they were made, of all replicas.
        deferrable: Ids of the handles of weights and of optimisers' variables: their writes are always put off.
        begun: Variable that is counted up when the writes begin.
        ended: Variable that is counted up when they are done.

    Returns:
        What was done; nothing is put off where the step writes nothing.
    """
    outer = Handles()
    uses = {operation: uses_of(operation) for operation in operations}
    written = [each for each in operations if uses[each].written and writes(each)]
    own = [each for each in written if any(outer.id(handle) in deferrable for handle in uses[each].written)]
    followers = _followers(operations, uses)
    early = _needed_by(own, [each for each in written if each not in set(own)], followers)
    late = [each for each in written if each not in early]
    if late:
        after = _downstream(late, followers)
        _bind([each for each in operations if each not in after], late, begun, ended)
    handles = {outer.id(handle): outer.of(handle) for each in early for handle in uses[each].written}
    return Ordered(late, list(handles.values()))


def _bind(computed: list[Any], late: list[Any], begun: Any, ended: Any) -> None:
    """Adds the edges: computed, then ``begun``, then the late writes, then ``ended``."""
    inside = set(computed)
    last = [each for each in computed if not any(user in inside for user in _users(each))]
    with tf.control_dependencies(last):
        barrier = tf.no_op(name="all_is_computed")
    with tf.control_dependencies([barrier]):
        start = begun.assign_add(1, read_value=False)
    start = start if start is not None else barrier
    for write in late:
        write._add_control_input(start)
    with tf.control_dependencies(late):
        ended.assign_add(1, read_value=False)


def writes(operation: Any) -> bool:
    """Whether an operation is a write of variables, or a call in which one may be."""
    return operation.type.startswith((*_WRITES, *SCATTERS)) or operation.type in CALLS


def uses_of(operation: Any) -> Uses:
    """The resources that an operation uses; one that it is not known only to read counts as written."""
    resources = [each for each in operation.inputs if each.dtype == tf.resource]
    if not resources:
        return Uses((), ())
    if operation.type in auto_control_deps_utils.RESOURCE_READ_OPS:
        return Uses(tuple(resources), ())
    read_only = {id(each) for each in _read_only(operation)}
    return Uses(
        tuple(each for each in resources if id(each) in read_only),
        tuple(each for each in resources if id(each) not in read_only),
    )


def _read_only(operation: Any) -> list[Any]:
    """Resources that a call of a function reads and does not write, as TensorFlow has noted them."""
    try:
        places = operation.get_attr(auto_control_deps_utils.READ_ONLY_RESOURCE_INPUTS_ATTR)
    except ValueError:
        return []
    inputs = list(operation.inputs)
    return [inputs[place] for place in places]


def _followers(operations: list[Any], uses: dict[Any, Uses]) -> dict[Any, set[Any]]:
    """Operations that come right after each one: by data, by control dependency, or by order of a resource."""
    known = set(operations)
    found: dict[Any, set[Any]] = {each: {user for user in _users(each) if user in known} for each in operations}
    last_write: dict[Any, Any] = {}
    reads: dict[Any, list[Any]] = collections.defaultdict(list)
    for operation in operations:
        used = uses[operation]
        chained = not used.read and not used.written and auto_control_deps.op_is_stateful(operation)
        for key in [id(each) for each in (*used.read, *used.written)] + ([_STATELESS_ORDER] if chained else []):
            if key in last_write and last_write[key] is not operation:
                found[last_write[key]].add(operation)
        for each in used.read:
            reads[id(each)].append(operation)
        for key in [id(each) for each in used.written] + ([_STATELESS_ORDER] if chained else []):
            for reader in reads.pop(key, []):
                if reader is not operation:
                    found[reader].add(operation)
            last_write[key] = operation
    return found


def _users(operation: Any) -> Iterator[Any]:
    for output in operation.outputs:
        yield from output.consumers()
    yield from operation._control_outputs


def _needed_by(own: list[Any], others: list[Any], followers: dict[Any, set[Any]]) -> set[Any]:
    """Those of other writes after which a write of the weights or of the optimiser comes."""
    if not own or not others:
        return set()
    before: dict[Any, set[Any]] = collections.defaultdict(set)
    for operation, after in followers.items():
        for each in after:
            before[each].add(operation)
    upstream = _downstream(own, before)
    return {each for each in others if each in upstream}


def _downstream(starts: Iterable[Any], followers: dict[Any, set[Any]]) -> set[Any]:
    """The operations that come after some, directly or not, and those themselves."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for each in followers.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


class Handles:
    """From the tensor of a resource inside nested graphs to the handle of the variable outside of all."""

    def __init__(self) -> None:
        self._captured: dict[int, dict[int, Any]] = {}

    def of(self, tensor: Any) -> Any:
        """The eager handle; the tensor itself where it is made inside the graph."""
        while not isinstance(tensor, tf.__internal__.EagerTensor):
            outside = self._outside(tensor)
            if outside is None:
                break
            tensor = outside
        return tensor

    def id(self, tensor: Any) -> int:
        """Identity of the eager handle."""
        return id(self.of(tensor))

    def _outside(self, tensor: Any) -> Optional[Any]:
        graph = tensor.graph
        if id(graph) not in self._captured:
            pairs = getattr(graph, "captures", ())
            self._captured[id(graph)] = {id(inner): outer for outer, inner in pairs}
        return self._captured[id(graph)].get(id(tensor))
