"""What one all-reduce of several tensors put into a graph, noted while the graph is traced."""

from __future__ import annotations

import collections
import dataclasses
import math
import weakref
from typing import Any, Iterator, Mapping, Optional, Sequence


@dataclasses.dataclass(frozen=True)
class Reduction:
    """One reduction of a batch of tensors, as it went into a graph.

    Attributes:
        shapes: Shape of each dense tensor.
        sparse: Number of IndexedSlices among the tensors; they are never packed.
        operations: Operations added to the graph, by type; empty when nothing was traced (eager execution).
        graphs: The graph it went into and those around it, innermost first, weakly held; empty in eager execution.
        sizes: Bytes of each dense tensor; None where the shape is not known.
        replicas: For how many replicas the operations are.
    """

    shapes: tuple[tuple[Optional[int], ...], ...]
    sparse: int
    operations: Mapping[str, int]
    graphs: tuple[weakref.ref[Any], ...] = ()
    sizes: tuple[Optional[int], ...] = ()
    replicas: int = 1

    def is_in(self, graphs: Sequence[Any]) -> bool:
        """Whether it went into one of these graphs, or into a loop or branch inside one."""
        around = {id(graph()) for graph in self.graphs if graph() is not None}
        return any(id(graph) in around for graph in graphs)


def operations() -> Optional[Mapping[str, int]]:
    """Operations of the graph being traced, by type; None in eager execution."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return None
    return collections.Counter(operation.type for operation in tf.compat.v1.get_default_graph().get_operations())


def note(values: Sequence[Any], before: Optional[Mapping[str, int]], replicas: int = 1) -> Reduction:
    """The record of a reduction that has just been traced.

    Args:
        values: What was reduced: tensors, IndexedSlices, or such values of several replicas.
        before: ``operations()`` as they were before it.
        replicas: For how many replicas it was traced.
    """
    import tensorflow as tf

    strategy, after = tf.distribute.get_strategy(), operations()
    firsts = [strategy.experimental_local_results(value)[0] for value in values]
    dense = [first for first in firsts if not isinstance(first, tf.IndexedSlices)]
    return Reduction(
        shapes=tuple(tuple(first.shape.as_list()) for first in dense),
        sparse=len(firsts) - len(dense),
        operations=dict(collections.Counter(after) - collections.Counter(before)) if before and after else {},
        graphs=() if tf.executing_eagerly() else tuple(_around(tf.compat.v1.get_default_graph())),
        sizes=tuple(_bytes(first) for first in dense),
        replicas=replicas,
    )


def _bytes(tensor: Any) -> Optional[int]:
    shape = tensor.shape
    return math.prod(shape.as_list()) * int(tensor.dtype.size) if shape.is_fully_defined() else None


def _around(graph: Any) -> Iterator[weakref.ref[Any]]:
    """A graph and those in which it is being traced, innermost first."""
    while graph is not None:
        yield weakref.ref(graph)
        graph = getattr(graph, "outer_graph", None)
