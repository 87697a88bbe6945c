"""A functional model's graph, cut into blocks and run with some of them as segments that are computed again."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, ClassVar, ContextManager, Iterator, Optional, Protocol, Sequence

from tfvolta.bridge.recompute_call import recomputed
from tfvolta.bridge.recompute_records import SegmentState
from tfvolta.footprint.layer import bytes_of
from tfvolta.footprint.segments import Span

Key = Any  # by which a Keras names a symbolic tensor
PLAN = "_tfvolta_recompute"  # where a graph that runs by a plan has it


@dataclasses.dataclass(frozen=True)
class Node:
    """One call in a functional graph.

    Attributes:
        operation: The layer, or the operation outside of layers.
        inputs: Keys of the symbolic tensors that it takes.
        outputs: Keys of those that it makes.
        shapes: Shape and type of each of these.
        weighted: Whether the operation has weights.
        call: Keras's own record of the call.
    """

    operation: Any
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    shapes: tuple[tuple[tuple[Optional[int], ...], str], ...]
    weighted: bool
    call: Any


class Adapter(Protocol):
    """What differs between Keras 2 and Keras 3."""

    def graph_of(self, layer: Any) -> Optional[Any]:
        """The functional graph that a layer runs, or None where its ``call`` is code."""

    def nodes(self, graph: Any) -> list[Node]:
        """The calls of a graph in the order in which Keras runs them, those of inputs left out."""

    def run(self, graph: Any, node: Node, tensors: dict[Key, Any], arguments: Any) -> list[Any]:
        """Runs one call; its results flat."""

    def output_keys(self, graph: Any) -> list[Key]:
        """Keys of a graph's outputs."""

    def surroundings(self) -> Callable[[], ContextManager[Any]]:
        """Takes down what Keras knows of the call under way; the result makes it so again, changing no variable."""

    def losses(self, layer: Any) -> int:
        """How many losses a layer and those below it have added so far."""

    def obstacle(self, layer: Any) -> str:
        """Why a layer cannot run twice in a step, from its kind alone; empty where nothing is known."""

    def convert(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's ``call`` as Keras runs it."""


@dataclasses.dataclass
class GraphPlan:
    """Segments of one graph.

    Attributes:
        spans: Positions of their nodes.
        states: What becomes of each.
        refuse: Called with a segment that cannot be repeated.
        adapter: That of the Keras in use.
    """

    adapter: Adapter
    spans: list[Span]
    states: list[SegmentState]
    refuse: Callable[[SegmentState], None]

    def __deepcopy__(self, memo: Any) -> None:
        """A copied model runs as Keras runs it."""


class PlannedGraphs(Adapter):
    """Puts plans on graphs: a graph that has one runs by it, through a method of its own in place of Keras's.

    Attributes:
        keras_run: Name of Keras's method that runs a graph.
        run_by_plan: What takes its place; called with the graph and what Keras's method is called with.
    """

    keras_run: ClassVar[str]
    run_by_plan: ClassVar[Callable[..., Any]]

    def install(self, graph: Any, plan: GraphPlan) -> None:
        """Makes a graph run by a plan."""
        graph.__dict__[PLAN] = plan
        graph.__dict__[self.keras_run] = types.MethodType(type(self).run_by_plan, graph)

    def uninstall(self, graph: Any) -> None:
        """Makes a graph run as Keras runs it."""
        graph.__dict__.pop(PLAN, None)
        graph.__dict__.pop(self.keras_run, None)


def blocks(nodes: Sequence[Node]) -> list[Span]:
    """Cuts a graph wherever a single tensor goes on that depends on weights: a residual block is one block.

    Tensors that no weight has touched, such as masks, are needed all along and are in no block's way; neither are
    results that are outputs of the model only.
    """
    last_use: dict[Key, int] = {}
    for position, node in enumerate(nodes):
        last_use.update(dict.fromkeys(node.inputs, position))
    carried = _carried(nodes)
    live: set[Key] = set()
    found, start = [], 0
    for position, node in enumerate(nodes):
        live.update(key for key in node.outputs if key not in carried)
        live = {key for key in live if last_use.get(key, -1) > position}
        if (len(live) == 1 and live <= set(node.outputs)) or position == len(nodes) - 1:
            found.append((start, position + 1))
            start = position + 1
    return found


def result_bytes(nodes: Sequence[Node], span: Span, batch: int) -> int:
    """Bytes of what is used of a span outside of it."""
    used = {key for node in [*nodes[: span[0]], *nodes[span[1] :]] for key in node.inputs}
    inside = nodes[span[0] : span[1]]
    made = [pair for node in inside for pair in zip(node.outputs, node.shapes)]
    shapes = [shape for key, shape in made if key in used] or [shape for _, shape in made[-1:]]
    return sum(size_of(shape, dtype, batch) for shape, dtype in shapes)


def size_of(shape: Sequence[Optional[int]], dtype: str, batch: int) -> int:
    """Bytes of a symbolic tensor; dimensions that are not known count as the batch."""
    return bytes_of(tuple(batch if size is None else size for size in shape), dtype)


def _carried(nodes: Sequence[Node]) -> set[Key]:
    """Keys of tensors that no weights have touched."""
    touched: set[Key] = set()
    carried: set[Key] = set()
    for node in nodes:
        if node.weighted or touched & set(node.inputs):
            touched.update(node.outputs)
        else:
            carried.update(node.outputs)
    return carried


def run_graph(adapter: Adapter, graph: Any, plan: GraphPlan, tensors: dict[Key, Any], arguments: Any) -> None:
    """Runs all calls of a graph, the segments of a plan as one unit each.

    Args:
        tensors: Values by key; those of the inputs at first, all others afterwards, but for those inside of segments.
        arguments: What Keras hands to every call, such as the training mode.
    """
    nodes = adapter.nodes(graph)
    run = _Run(adapter, graph, nodes, tensors, arguments)
    position = 0
    starts = {span[0]: number for number, span in enumerate(plan.spans)}
    while position < len(nodes):
        number = starts.get(position)
        if number is None:
            run.step(nodes[position], tensors)
            position += 1
        else:
            _segment(run, plan, number)
            position = plan.spans[number][1]


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of a graph."""

    adapter: Adapter
    graph: Any
    nodes: list[Node]
    tensors: dict[Key, Any]
    arguments: Any

    def step(self, node: Node, tensors: dict[Key, Any]) -> None:
        """Runs one call where all that it takes is there."""
        if all(key in tensors for key in node.inputs):
            tensors.update(zip(node.outputs, self.adapter.run(self.graph, node, tensors, self.arguments)))


def _segment(run: _Run, plan: GraphPlan, number: int) -> None:
    """Runs one segment as a unit."""
    adapter, span = run.adapter, plan.spans[number]
    inside = run.nodes[span[0] : span[1]]
    taken, given = _ports(run.nodes, span, adapter.output_keys(run.graph))

    def compute(inputs: Sequence[Any]) -> list[Any]:
        values = dict(zip(taken, inputs))
        for node in inside:
            run.step(node, values)
        return [values[key] for key in given]

    def losses() -> int:
        return sum(adapter.losses(node.operation) for node in inside)

    before = losses()
    results, repetition = recomputed(
        compute,
        [run.tensors[key] for key in taken],
        adapter.surroundings(),
        lambda: "adds a loss of its own" if losses() != before else "",
    )
    plan.states[number].calls.append(repetition)
    if repetition.fault:
        plan.refuse(plan.states[number])
    run.tensors.update(zip(given, results))


def _ports(nodes: list[Node], span: Span, outputs: list[Key]) -> tuple[list[Key], list[Key]]:
    """Keys of what a span takes from outside and of what is used of it there."""
    inside = nodes[span[0] : span[1]]
    made = {key for node in inside for key in node.outputs}
    taken = dict.fromkeys(key for node in inside for key in node.inputs if key not in made)
    used = {key for node in nodes[span[1] :] for key in node.inputs} | set(outputs)
    return list(taken), [key for node in inside for key in node.outputs if key in used]


def layers_in(nodes: Sequence[Node], span: Span) -> Iterator[Any]:
    """The operations of a span, each once."""
    yield from {id(node.operation): node.operation for node in nodes[span[0] : span[1]]}.values()
