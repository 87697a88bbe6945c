"""One of two functions takes effect: in a step that XLA compiles both run, and what they write is selected.

XLA on a GPU runs a condition by waiting for its predicate on the host: all kernels of the step before it have ended by
then, the host has launched nothing ahead, and the device idles while it catches up. A loss scale has such a condition
in each step, around the whole update. Written as a selection the update is the same arithmetic in the same kernels,
which read the old values anyway, and the host runs ahead of the device. Elsewhere a condition saves the work of the
branch that is not taken, and stays.

Which variables a branch writes is found by tracing it once beforehand. A condition also stays where a branch does
something else than read and write variables, and where rows of a large table are written: a selection would copy the
table.

Source: xla/service/gpu/runtime (the conditional thunk); tensorflow/python/framework/auto_control_deps.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps, func_graph

from tfvolta.bridge.late_writes import CALLS, SCATTERS, Handles, uses_of, writes
from tfvolta.bridge.tensorflow_private import in_xla_context

# Rows of a table that is smaller are selected with the table: 256 MiB are copied in a tenth of a millisecond or two.
_TABLE_BYTES = 256 * 2**20
# What has an effect by TensorFlow's book and none that matters here.
_HARMLESS = ("Assert", "CheckNumerics", "StatelessRandom", "NoOp", "Placeholder", "VarHandleOp")


@dataclasses.dataclass(frozen=True)
class Target:
    """A variable that a branch writes.

    Attributes:
        handle: Of the variable, outside of the branch.
        dtype: Of its value.
    """

    handle: Any
    dtype: Any

    def read(self) -> Any:
        """The value at this place of the trace."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def write(self, value: Any) -> None:
        """Gives the variable a value from this place on."""
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def either(predicate: Any, taken: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
    """Lets one of two functions write its variables; what they return is not used.

    Args:
        predicate: Scalar bool tensor: whether it is ``taken``.
        taken: Reads and writes variables, called while a step is traced.
        otherwise: The other one.
    """
    found = _targets(taken, otherwise) if in_xla_context() else None
    if found is None:
        tf.cond(predicate, _quiet(taken), _quiet(otherwise))
        return
    by_taken, by_otherwise = found
    targets = {**by_taken, **by_otherwise}
    old = {key: target.read() for key, target in targets.items()}
    taken()
    new = {key: target.read() for key, target in by_taken.items()}
    if by_otherwise:
        for key, target in by_taken.items():
            target.write(old[key])  # the other branch begins where this one began
        otherwise()
    for key, target in targets.items():
        other = target.read() if key in by_otherwise else old[key]
        target.write(tf.where(predicate, new.get(key, old[key]), other))


def _quiet(branch: Callable[[], Any]) -> Callable[[], Any]:
    """A branch of a condition that returns nothing: both have to return the same."""

    def run() -> Any:
        branch()
        return tf.constant(True)

    return run


def _targets(*branches: Callable[[], Any]) -> Optional[tuple[dict[int, Target], ...]]:
    """The variables that each branch writes, by the identity of their handles; None where a condition has to stay."""
    found = [_written(branch) for branch in branches]
    return None if any(each is None for each in found) else tuple(each for each in found if each is not None)


def _written(branch: Callable[[], Any]) -> Optional[dict[int, Target]]:
    graph = func_graph.func_graph_from_py_func("tfvolta_branch", _quiet(branch), (), {})
    handles, found = Handles(), dict[int, Target]()
    for operation in graph.get_operations():
        used = uses_of(operation)
        if not used.written:
            if not used.read and _has_effect(operation):
                return None
            continue
        for tensor in used.written:
            target = _target(operation, tensor, handles)
            if target is None:
                return None
            found[handles.id(tensor)] = target
    return found


def _target(operation: Any, tensor: Any, handles: Handles) -> Optional[Target]:
    """The variable behind a resource that an operation writes; None where it is none, or is better not copied."""
    data = getattr(handles.of(tensor), "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1 or not writes(operation):
        return None
    dtype = tf.as_dtype(data.shape_and_type[0].dtype)
    shape = tf.TensorShape(data.shape_and_type[0].shape)
    if operation.type.startswith((*SCATTERS, *CALLS, "ResourceSparseApply")):
        size = shape.num_elements()
        if size is None or size * dtype.size > _TABLE_BYTES:
            return None
    return Target(handles.of(tensor), dtype)


def _has_effect(operation: Any) -> bool:
    return auto_control_deps.op_is_stateful(operation) and not operation.type.startswith((*_HARMLESS, *CALLS))
