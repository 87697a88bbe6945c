"""All-reduce objects that note what they put into the graph, so that packing is seen and not believed.

``tf.distribute.CrossDeviceOps`` is made to be subclassed: ``batch_reduce_implementation`` is where Keras's gradients
arrive, all in one call, while the train step is traced. Counting the graph's operations before and after that
call gives those of the gradients alone; metrics and batch normalisation add operations of the same types elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import weakref
from typing import Any, Iterator, Mapping, Optional, Sequence


@dataclasses.dataclass(frozen=True)
class Reduction:
    """One reduction of a batch of gradients, as it went into a graph.

    Attributes:
        shapes: Shape of each dense gradient.
        sparse: Number of IndexedSlices among the gradients; they are never packed.
        operations: Operations added to the graph, by type; empty when nothing was traced (eager execution).
        graphs: The graph it went into and those around it, innermost first, weakly held; empty in eager execution.
    """

    shapes: tuple[tuple[Optional[int], ...], ...]
    sparse: int
    operations: Mapping[str, int]
    graphs: tuple[weakref.ref[Any], ...] = ()

    def is_in(self, graphs: Sequence[Any]) -> bool:
        """Whether it went into one of these graphs, or into a loop or branch inside one."""
        around = {id(graph()) for graph in self.graphs if graph() is not None}
        return any(id(graph) in around for graph in graphs)


def make_reducer(tensorflow: Any, implementation: str, num_packs: Optional[int]) -> Optional[Any]:
    """The recording all-reduce of MirroredStrategy for a config's ``implementation``.

    Args:
        implementation: ``auto`` leaves the choice to TensorFlow.
        num_packs: For ``nccl`` and ``hierarchical_copy``; None is TensorFlow's default, one pack.

    Returns:
        A ``tf.distribute.CrossDeviceOps`` with a list ``reductions``, or None for ``auto``.
    """
    distribute = tensorflow.distribute
    base = {
        "nccl": distribute.NcclAllReduce,
        "hierarchical_copy": distribute.HierarchicalCopyAllReduce,
        "reduction_to_one_device": distribute.ReductionToOneDevice,
    }.get(implementation)
    if base is None:
        return None
    made = _recording(base)() if num_packs is None else _recording(base)(num_packs=num_packs)
    made.reductions = []
    return made


def _recording(base: Any) -> Any:
    """A subclass of one of TensorFlow's all-reduces that notes every batch of gradients."""

    def batch_reduce_implementation(self: Any, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        pairs = list(value_destination_pairs)
        before = _operations()
        result = base.batch_reduce_implementation(self, reduce_op, pairs, options)
        self.reductions.append(_note([value for value, _ in pairs], before, _operations()))
        return result

    return type(base.__name__, (base,), {"batch_reduce_implementation": batch_reduce_implementation})


def _operations() -> Optional[Mapping[str, int]]:
    """Operations of the graph being traced, by type; None in eager execution."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return None
    return collections.Counter(operation.type for operation in tf.compat.v1.get_default_graph().get_operations())


def _note(values: Sequence[Any], before: Optional[Mapping[str, int]], after: Optional[Mapping[str, int]]) -> Reduction:
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    firsts = [strategy.experimental_local_results(value)[0] for value in values]
    dense = [first for first in firsts if not isinstance(first, tf.IndexedSlices)]
    return Reduction(
        shapes=tuple(tuple(first.shape.as_list()) for first in dense),
        sparse=len(firsts) - len(dense),
        operations=dict(collections.Counter(after) - collections.Counter(before)) if before and after else {},
        graphs=() if tf.executing_eagerly() else tuple(_around(tf.compat.v1.get_default_graph())),
    )


def _around(graph: Any) -> Iterator[weakref.ref[Any]]:
    """A graph and those in which it is being traced, innermost first."""
    while graph is not None:
        yield weakref.ref(graph)
        graph = getattr(graph, "outer_graph", None)
