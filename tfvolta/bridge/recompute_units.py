"""A model as a chain of units that can be computed again: blocks of its graphs, and layers whose call is code."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Mapping, Optional, Protocol, Sequence

from tfvolta.bridge.recompute_graph import Adapter, Node, blocks, layers_in, result_bytes, size_of
from tfvolta.footprint.layer import LayerFigures, bytes_of
from tfvolta.footprint.segments import Block, Span


class TreeAdapter(Adapter, Protocol):
    """What finding units needs of a Keras besides."""

    def children(self, layer: Any) -> list[Any]:
        """The layers directly below one; none for an operation outside of layers."""

    def is_layer(self, operation: Any) -> bool:
        """Whether an operation is a layer of the model's maker."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """One unit.

    Attributes:
        name: Its first and last layer, or its only one.
        layers: Paths of its layers, of the outermost ones only.
        obstacle: Why it cannot be computed again; empty where nothing is known.
        graph: The graph that holds it; None for a layer whose call is code and that no graph calls.
        span: Positions of its nodes in the graph.
        layer: The layer, where there is no graph.
        scope: Number of its graph among those of the model, or of the layer.
    """

    name: str
    layers: tuple[str, ...]
    obstacle: str
    graph: Optional[Any] = None
    span: Span = (0, 0)
    layer: Optional[Any] = None
    scope: int = 0


class Units:
    """Finds the units of one model.

    Args:
        adapter: That of the Keras in use.
        model: The model.
        named: Every layer below it by path.
    """

    def __init__(self, adapter: TreeAdapter, model: Any, named: Sequence[tuple[str, Any]]):
        self.adapter = adapter
        self.model = model
        self.paths = {id(layer): path for path, layer in named}
        self._scopes = 0
        self._seen: set[int] = set()

    def all(self) -> list[Unit]:
        """Units that together are the whole model, in the order in which they are held."""
        return list(self._expanded(self.model, top=True))

    def of(self, layer: Any) -> list[Unit]:
        """Units that together are one layer; a layer whose call is code is one unit."""
        return list(self._expanded(layer)) if self.adapter.graph_of(layer) is not None else [self.call_unit(layer)]

    def call_unit(self, layer: Any) -> Unit:
        """A layer whose call is code."""
        self._scopes += 1
        path = self.path(layer)
        return Unit(path, (path,), self.adapter.obstacle(layer), layer=layer, scope=self._scopes)

    def graph_unit(self, graph: Any, nodes: Sequence[Node], span: Span, scope: int) -> Unit:
        """Nodes of a graph that follow each other."""
        operations = list(layers_in(nodes, span))
        layers = [operation for operation in operations if self.adapter.is_layer(operation)]
        paths = tuple(self.path(layer) for layer in layers or operations)
        obstacle = next((found for found in map(self.adapter.obstacle, operations) if found), "")
        name = paths[0] if len(paths) == 1 else f"{paths[0]} to {paths[-1]}"
        return Unit(name, paths, obstacle, graph, span, scope=scope)

    def path(self, operation: Any) -> str:
        """Path of a layer; the name of an operation outside of layers."""
        return self.paths.get(id(operation), str(operation.name))

    def _expanded(self, layer: Any, top: bool = False) -> Iterator[Unit]:
        if id(layer) in self._seen:
            return  # a layer that is called at two places is cut once
        self._seen.add(id(layer))
        graph = self.adapter.graph_of(layer)
        if graph is not None:
            yield from self._of_graph(graph)
            return
        for part in self._frontier(layer, top):
            if self.adapter.graph_of(part) is not None:
                yield from self._expanded(part)
            else:
                yield self.call_unit(part)

    def _of_graph(self, graph: Any) -> Iterator[Unit]:
        self._scopes += 1
        scope = self._scopes
        nodes = self.adapter.nodes(graph)
        for span in blocks(nodes):
            only = nodes[span[0]].operation if span[1] - span[0] == 1 else None
            if only is not None and self._is_divisible(only):
                yield from self._expanded(only)
            else:
                yield self.graph_unit(graph, nodes, span, scope)

    def _is_divisible(self, layer: Any) -> bool:
        """Whether a layer that is a block by itself is better cut inside."""
        if self.adapter.graph_of(layer) is not None:
            return True
        return self._frontier(layer, False) != [layer]

    def _frontier(self, layer: Any, top: bool) -> list[Any]:
        """The layers below one that make the best units: what is kept and what comes back at once shall both be small.

        Each unit keeps one result, and the largest one comes back with all its layers; of the ways to open layers,
        largest first, the one with the smallest sum is taken. Twenty-four blocks in a list are such a way.
        """
        parts = list(self.adapter.children(layer)) if top else [layer]
        best, least = parts, _burden(parts, self.adapter)
        while True:
            open_ones = [part for part in parts if self._can_open(part)]
            if not open_ones:
                return best
            largest = max(open_ones, key=lambda part: leaves(part, self.adapter))
            place = next(number for number, part in enumerate(parts) if part is largest)
            parts = [*parts[:place], *self.adapter.children(largest), *parts[place + 1 :]]
            burden = _burden(parts, self.adapter)
            if burden < least:
                best, least = parts, burden

    def _can_open(self, layer: Any) -> bool:
        return self.adapter.graph_of(layer) is None and bool(self.adapter.children(layer))


def leaves(layer: Any, adapter: TreeAdapter) -> int:
    """Layers below a layer that hold no others; one for a layer without any."""
    below = adapter.children(layer)
    return sum(leaves(child, adapter) for child in below) if below else 1


def _burden(parts: Sequence[Any], adapter: TreeAdapter) -> int:
    """A unit's result counts one; a graph is cut further, so that of it only the root comes back."""
    sizes = [leaves(part, adapter) for part in parts]
    graphs = [adapter.graph_of(part) is not None for part in parts]
    kept = sum(int(size**0.5) if graph else 1 for size, graph in zip(sizes, graphs))
    return kept + max((int(size**0.5) if graph else size for size, graph in zip(sizes, graphs)), default=0)


def sized(units: Sequence[Unit], adapter: TreeAdapter, rows: Sequence[LayerFigures], batch: int) -> list[Block]:
    """Units as the blocks of ``tfvolta.footprint.segments``.

    A plain block keeps what each of its layers returns. Work is counted in multiply-adds, or in bytes where no layer
    has any.

    Args:
        rows: Figures of the model's layers; empty where they are not known, then the graph's own shapes have to do.
        batch: Examples.
    """
    figures = {row.name: row for row in rows}
    multiplied = any(row.multiply_adds for row in rows)
    found = []
    for unit in units:
        inside = [row for path in unit.layers for row in _below(figures, path)]
        kept = sum(bytes_of(shape, row.compute_dtype) for row in inside for shape in row.output_shapes)
        if unit.graph is not None:
            nodes = adapter.nodes(unit.graph)
            result = result_bytes(nodes, unit.span, batch)
            known = {path for path in unit.layers if path in figures}
            for node in nodes[unit.span[0] : unit.span[1]]:
                if not adapter.is_layer(node.operation) or not known:
                    kept += sum(size_of(shape, dtype, batch) for shape, dtype in node.shapes)
        else:
            row = figures.get(unit.layers[0])
            result = bytes_of(row.output_shapes[-1], row.compute_dtype) if row is not None and row.output_shapes else 0
        work = sum(row.multiply_adds or 0 for row in inside) if multiplied else kept
        found.append(Block(unit.name, max(kept, result), result, float(work), not unit.obstacle, unit.scope))
    return found


def _below(figures: Mapping[str, LayerFigures], path: str) -> list[LayerFigures]:
    """Rows of a layer's innermost layers; its own where there are none."""
    inside = [row for name, row in figures.items() if name.startswith(f"{path}/")]
    innermost = [row for row in inside if not any(other.name.startswith(f"{row.name}/") for other in inside)]
    own = [figures[path]] if path in figures else []
    return innermost or own
