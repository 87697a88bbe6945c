"""How gradients are reduced in a traced train function: operations, their dtypes and bytes, told apart from others.

Gradients are reduced under a name scope of the bridge's. Operations inside functions that are called from there
(branches, loops) belong to it too.
"""

from __future__ import annotations

import collections
from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.reduction import ReductionGraph
from tfvolta.bridge.wire import SCOPE

_SUMS = frozenset({"AddN"})  # of all-reduces that copy to one device; outside of the scope they are anything


class _Tally:
    """Counts operations and bytes, those of gradients and those of others."""

    def __init__(self) -> None:
        self.operations: collections.Counter[str] = collections.Counter()
        self.others: collections.Counter[str] = collections.Counter()
        self.bytes: Optional[int] = 0
        self.other_bytes: Optional[int] = 0

    def add(self, node: Any, scoped: bool) -> None:
        """Counts one node if it reduces."""
        if node.op not in graphs.COLLECTIVES and not (scoped and node.op in _SUMS):
            return
        number = next((node.attr[name].type for name in ("T", "dtype") if name in node.attr), 0)
        dtype = tf.dtypes.as_dtype(number) if number else None
        key = node.op if dtype is None else f"{node.op}[{dtype.name}]"
        size = None if node.op in _SUMS or dtype is None else _elements(node)
        size = None if size is None or dtype is None else size * dtype.size
        if scoped:
            self.operations[key] += 1
            self.bytes = None if self.bytes is None or size is None else self.bytes + size
        else:
            self.others[key] += 1
            self.other_bytes = None if self.other_bytes is None or size is None else self.other_bytes + size


def reduction_graph(function: Any, replicas: int) -> Optional[ReductionGraph]:
    """What a train function reduces; None where it was not traced or runs eagerly.

    Args:
        function: One train function, as a model holds it.
        replicas: Replicas whose operations are in one graph: those of this process.
    """
    latest = [traced._list_all_concrete_functions() for traced in graphs.outermost(function)]
    concrete = next((found[-1] for found in latest if found), None)
    if concrete is None:
        return None
    graph = concrete.graph.as_graph_def(add_shapes=True)
    library = {each.signature.name: each for each in graph.library.function}
    tally = _Tally()
    for node, scoped in _nodes(graph.node, library, False):
        tally.add(node, scoped)
    return ReductionGraph(
        operations=dict(tally.operations),
        bytes=None if tally.bytes is None else tally.bytes // replicas,
        others=dict(tally.others),
        other_bytes=None if tally.other_bytes is None else tally.other_bytes // replicas,
    )


def _nodes(nodes: Any, library: Any, scoped: bool) -> Iterator[tuple[Any, bool]]:
    """Every node that is run, with those of the functions that it calls, and whether it reduces gradients."""
    for node in nodes:
        inside = scoped or any(part.startswith(SCOPE) for part in node.name.split("/"))
        yield node, inside
        for attribute in node.attr.values():
            called = [attribute.func.name, *(each.name for each in attribute.list.func)]
            for name in called:
                if name in library:
                    yield from _nodes(library[name].node_def, library, inside)


def _elements(node: Any) -> Optional[int]:
    """Elements of what an operation puts out, which has the shape of what it takes in; None where open."""
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else []
    if not shapes or shapes[0].unknown_rank or any(each.size < 0 for each in shapes[0].dim):
        return None
    total = 1
    for each in shapes[0].dim:
        total *= each.size
    return total
