"""Sums of gradients over the micro-batches of a window, each replica's own, in float32 or wider.

The variables hold one copy of the trainable weights on each replica. They are made when a gradient first arrives, are
in no model's or optimiser's list and in no file, and are never reduced themselves. Sparse gradients are added into
dense sums, with a note of the rows that were touched: what leaves the window is sparse again, each row once, so that
optimisers which leave untouched rows alone go on doing so. In a step that XLA compiles it is dense: ``tf.unique``, by
which optimisers add up the slices of a row, counts there the padding of rows that were found while the step ran.

Whatever is written waits for a gradient: where the data run out in a call, nothing changes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tfvolta.bridge.wire import mapped, values_of

_HALVES = (tf.float16, tf.bfloat16)


@dataclasses.dataclass
class _Sum:
    """The sum of one variable's gradients; ``touched`` is 1.0 for each row of it that a sparse gradient named."""

    total: Any
    touched: Optional[Any] = None


class Window:
    """The sums of a model's gradients, by variable."""

    def __init__(self) -> None:
        self._sums: dict[Any, _Sum] = {}

    def __len__(self) -> int:
        return len(self._sums)

    @property
    def bytes(self) -> int:
        """Bytes of the sums that one replica holds."""
        held = [each for pair in self._sums.values() for each in (pair.total, pair.touched) if each is not None]
        return sum(int(each.shape.num_elements()) * each.dtype.size for each in held)

    def add(self, gradients: list[Any], variables: list[Any]) -> None:
        """Adds one micro-batch; in replica context.

        Args:
            gradients: Tensors and ``IndexedSlices`` without None.
            variables: Their variables.
        """
        for gradient, variable in zip(gradients, variables):
            self._add(gradient, self._sum_of(variable, gradient))

    def take(self, gradients: list[Any], variables: list[Any], every: int) -> list[Any]:
        """The average of a last micro-batch and those before it; the window is empty then."""
        taken = []
        for gradient, variable in zip(gradients, variables):
            found = self._sum_of(variable, gradient)
            if isinstance(gradient, tf.IndexedSlices):
                self._add(gradient, found)
                average = _taken_rows(found, every) if found.touched is not None else _taken(found, None, every)
            else:
                average = _taken(found, gradient, every)
            taken.append(mapped(functools.partial(tf.cast, dtype=values_of(gradient).dtype), average))
        return taken

    def clear(self, strategy: Any) -> None:
        """Forgets what was added; outside of any replica."""
        for pair in self._sums.values():
            for held in (pair.total, pair.touched):
                if held is not None:
                    for copy in strategy.experimental_local_results(held):
                        copy.assign(tf.zeros_like(copy))

    def _add(self, gradient: Any, found: _Sum) -> None:
        if not isinstance(gradient, tf.IndexedSlices):
            found.total.assign_add(tf.cast(gradient, found.total.dtype))
            return
        rows = gradient.indices
        tf.raw_ops.ResourceScatterAdd(
            resource=found.total.handle, indices=rows, updates=tf.cast(gradient.values, found.total.dtype)
        )
        if found.touched is None:
            return
        with tf.control_dependencies([gradient.values]):
            ones = tf.ones_like(rows, dtype=tf.float32)
            tf.raw_ops.ResourceScatterUpdate(resource=found.touched.handle, indices=rows, updates=ones)

    def _sum_of(self, variable: Any, gradient: Any) -> _Sum:
        key = key_of(variable)
        if key not in self._sums:
            dtype = values_of(gradient).dtype
            dtype = tf.float32 if dtype in _HALVES else dtype
            self._sums[key] = _Sum(own_variable(variable.shape, dtype, "gradient_sum"))
        found = self._sums[key]
        if isinstance(gradient, tf.IndexedSlices) and found.touched is None and not in_xla():
            found.touched = own_variable(variable.shape[:1], tf.float32, "touched_rows")
        return found


def key_of(variable: Any) -> Any:
    """What names a variable for all of its copies, whichever Keras wraps it."""
    value = getattr(variable, "value", None)  # Keras 3 wraps TensorFlow's variable; on TensorFlow's own it is a method
    variable = variable if value is None or callable(value) else value
    container = getattr(variable, "_distributed_container", None)
    return (variable if container is None else container())._unique_id


def own_variable(shape: Any, dtype: Any, name: str) -> Any:
    """A variable of each replica's own; made past the graph that is being traced."""
    with tf.init_scope():
        return tf.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            name=name,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )


def _read(variable: Any) -> Any:
    """The replica's own value; ``convert_to_tensor`` would reduce it over replicas outside of one."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def in_xla() -> bool:
    """Whether the code that is being traced will be compiled by XLA."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def _taken(found: _Sum, last: Optional[Any], every: int) -> Any:
    """The average of a sum and a last gradient; the sum is zero then."""
    total = _read(found.total)
    total = total if last is None else total + tf.cast(last, found.total.dtype)
    with tf.control_dependencies([total]):
        found.total.assign(tf.zeros(found.total.shape, found.total.dtype))
    return total / every


def _taken_rows(found: _Sum, every: int) -> Any:
    """The average of the touched rows; those rows are zero then, and untouched."""
    touched: Any = found.touched
    rows = tf.reshape(tf.where(_read(touched) > 0), [-1])
    values = tf.raw_ops.ResourceGather(resource=found.total.handle, indices=rows, dtype=found.total.dtype)
    with tf.control_dependencies([values]):
        tf.raw_ops.ResourceScatterUpdate(resource=found.total.handle, indices=rows, updates=tf.zeros_like(values))
        none = tf.zeros_like(rows, dtype=tf.float32)
        tf.raw_ops.ResourceScatterUpdate(resource=touched.handle, indices=rows, updates=none)
    return tf.IndexedSlices(values / every, rows, tf.shape(found.total, out_type=tf.int64))
