"""From what is asked for to the units of a model that are computed again, and what speaks against it."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from typing import Any, Callable, Iterator, Sequence

from tfvolta.bridge.recompute_graph import blocks
from tfvolta.bridge.recompute_records import RecomputeRequest, megabytes
from tfvolta.bridge.recompute_units import TreeAdapter, Unit, Units, sized
from tfvolta.errors import BridgeError, Problem
from tfvolta.footprint.layer import LayerFigures
from tfvolta.footprint.segments import NothingFitsError, Span, covering, every, measured, within

Figures = Callable[[int], list[LayerFigures]]  # of the layers, for so many examples


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is computed again.

    Attributes:
        units: Each a segment.
        left_out: Names of units that are not, with the reason.
        said: How they were chosen.
    """

    units: tuple[Unit, ...]
    left_out: dict[str, str]
    said: str


def choose(
    adapter: TreeAdapter, model: Any, named: Sequence[tuple[str, Any]], request: RecomputeRequest, figures: Figures
) -> Choice:
    """Chooses the segments of a model.

    Args:
        adapter: That of the Keras in use.
        named: Every layer below the model by path.
        figures: Makes the figures of its layers; called for a budget only.

    Raises:
        BridgeError: A name matches nothing, a named layer cannot be computed again, or no cut fits the budget.
    """
    units = Units(adapter, model, named)
    if request.layers:
        return _named(units, named, request.layers)
    chain = units.all()
    if not chain:
        raise _no_layers(model)
    left_out = {unit.name: unit.obstacle for unit in chain if unit.obstacle}
    if request.every is not None:
        spans = every(sized(chain, adapter, (), 1), request.every)
        return Choice(tuple(_joined(units, chain, spans)), left_out, _of_every(chain, spans, request.every))
    return _within_budget(units, chain, left_out, request, figures)


def _joined(units: Units, chain: Sequence[Unit], spans: Sequence[Span]) -> Iterator[Unit]:
    """Units as segments: those of one graph become one unit."""
    for first, last in spans:
        head = chain[first]
        if last - first == 1 or head.graph is None:
            yield head
        else:
            nodes = units.adapter.nodes(head.graph)
            yield units.graph_unit(head.graph, nodes, (head.span[0], chain[last - 1].span[1]), head.scope)


def _of_every(chain: Sequence[Unit], spans: Sequence[Span], count: int) -> str:
    said = f"{len(chain)} blocks in segments of {count}"
    if count > 1 and any(unit.graph is None for unit in chain):
        return (
            f"{said}; layers that the model's own code calls are a segment each, since what lies between is not known"
        )
    return said


def _within_budget(
    units: Units, chain: list[Unit], left_out: dict[str, str], request: RecomputeRequest, figures: Figures
) -> Choice:
    batch, budget = request.batch, request.budget_bytes or 0
    if batch is None:
        raise _no_batch()
    sizes = sized(chain, units.adapter, figures(batch), batch)
    plain = measured(sizes, [])
    try:
        cut = within(sizes, budget)
    except NothingFitsError as fault:
        raise _nothing_fits(budget, plain.held_bytes, fault.smallest_bytes, left_out) from None
    if not cut.spans:
        said = f"activations, an estimated {megabytes(plain.held_bytes)}, fit into {megabytes(budget)} as they are"
    else:
        said = (
            f"an estimated {megabytes(cut.held_bytes)} of activations at one time instead of"
            f" {megabytes(plain.held_bytes)}, for {cut.again:.0%} of the forward work done twice"
        )
    return Choice(tuple(_joined(units, chain, cut.spans)), left_out, said)


def _named(units: Units, named: Sequence[tuple[str, Any]], patterns: Sequence[str]) -> Choice:
    """Segments of the layers that patterns match; of a layer that matches, the layers inside are not asked for."""
    matched = {id(layer): path for path, layer in named if any(_matches(path, layer, each) for each in patterns)}
    problems = [
        _unmatched(each, named) for each in patterns if not any(_matches(path, layer, each) for path, layer in named)
    ]
    for path, layer in named:
        outer = any(path.startswith(f"{other}/") for other in matched.values())
        if id(layer) in matched and outer:
            del matched[id(layer)]
    asked = {id(layer): path for path, layer in named if id(layer) in matched and not _is_input(layer)}
    found, in_graphs = _of_graphs(units, named, set(asked))
    layers = [layer for _, layer in named if id(layer) in asked and id(layer) not in in_graphs]
    found += [unit for layer in layers for unit in units.of(layer)]
    problems += [_cannot(unit) for unit in found if unit.obstacle]
    if problems:
        raise BridgeError("These layers cannot be computed again.", problems)
    said = f"{len(asked)} layers that match {', '.join(patterns)}, in {len(found)} segments"
    return Choice(tuple(found), {}, said)


def _is_input(layer: Any) -> bool:
    return type(layer).__name__ == "InputLayer"


def _of_graphs(units: Units, named: Sequence[tuple[str, Any]], asked: set[int]) -> tuple[list[Unit], set[int]]:
    """Units of the asked layers that a graph calls, and which layers these are."""
    adapter = units.adapter
    candidates = [adapter.graph_of(layer) for layer in [units.model, *(layer for _, layer in named)]]
    graphs = {id(graph): graph for graph in candidates if graph is not None}
    found: list[Unit] = []
    done: set[int] = set()
    for scope, graph in enumerate(graphs.values()):
        nodes = adapter.nodes(graph)
        flags = [id(node.operation) in asked and adapter.graph_of(node.operation) is None for node in nodes]
        done |= {id(node.operation) for node, flag in zip(nodes, flags) if flag}
        for place in range(1, len(nodes) - 1):  # an addition between two layers goes with them
            flags[place] |= flags[place - 1] and flags[place + 1] and not adapter.is_layer(nodes[place].operation)
        cuts = [span[1] for span in blocks(nodes)]
        for span in _stretches(adapter, nodes, flags):
            inner = sorted({span[0], span[1], *(cut for cut in cuts if span[0] < cut < span[1])})
            parts = [units.graph_unit(graph, nodes, pair, scope) for pair in zip(inner, inner[1:])]
            found += _joined(units, parts, covering(sized(parts, adapter, (), 1)))
            found += [part for part in parts if part.obstacle]  # to be refused
    return found, done


def _stretches(adapter: TreeAdapter, nodes: Sequence[Any], flags: Sequence[bool]) -> Iterator[Span]:
    """Asked nodes that follow each other; a layer that holds others is a stretch by itself."""
    start = None
    for place, (node, flag) in enumerate(zip(nodes, flags)):
        whole = flag and adapter.is_layer(node.operation) and bool(adapter.children(node.operation))
        if start is not None and (whole or not flag):
            yield start, place
            start = None
        if whole:
            yield place, place + 1
        elif flag and start is None:
            start = place
    if start is not None:
        yield start, len(nodes)


def _matches(path: str, layer: Any, pattern: str) -> bool:
    names = (type(layer).__name__, path.rsplit("/", 1)[-1], path)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _unmatched(pattern: str, named: Sequence[tuple[str, Any]]) -> Problem:
    names = list(dict.fromkeys([*(path for path, _ in named), *(type(layer).__name__ for _, layer in named)]))
    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.5)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return Problem(
        where=f"memory.recompute.layers: {pattern}",
        expected="a class, a name or a path of a layer of this model, as a shell pattern",
        received=f"{pattern}, which matches none of its {len(named)} layers",
        why=f"the model has {shown}",
        fix=f"did you mean {', '.join(near)}?" if near else "name one of these, or set memory.recompute.every: 1",
    )


def _cannot(unit: Unit) -> Problem:
    return Problem(
        where=f"memory.recompute.layers: {unit.name}",
        expected="layers that compute the same a second time",
        received=unit.name,
        why=unit.obstacle,
        fix=f"take {unit.name} out of the list, or set memory.recompute.every: n, which leaves such layers out",
    )


def _no_layers(model: Any) -> BridgeError:
    return BridgeError(
        "There is nothing to compute again.",
        [
            Problem(
                where=f"memory.recompute: model {getattr(model, 'name', model)}",
                expected="a model with layers",
                received="none, or none yet: its layers are made when it is built",
                fix="build the model before fit, by model.build(input_shape) or one call of it",
            )
        ],
    )


def _no_batch() -> BridgeError:
    return BridgeError(
        "The budget cannot be kept.",
        [
            Problem(
                where="memory.recompute.budget_mb",
                expected="data whose batch size is known before the first step",
                received="a batch size that is not known",
                why="activations are as large as the batch",
                fix="set a static batch size (drop_remainder=True), or cut by memory.recompute.every",
            )
        ],
    )


def _nothing_fits(budget: int, plain: int, smallest: int, left_out: dict[str, str]) -> BridgeError:
    why = f"activations are an estimated {megabytes(plain)} without, and {megabytes(smallest)} with the best cut"
    if left_out:
        why += f"; kept in any case: {', '.join(f'{name} ({reason})' for name, reason in left_out.items())}"
    least = -(-smallest // 2**20)
    return BridgeError(
        "The budget cannot be kept.",
        [
            Problem(
                where="memory.recompute.budget_mb",
                expected=f"{least} or more for this model and batch",
                received=str(budget // 2**20),
                why=why,
                fix=f"budget_mb: {least}, or a smaller batch",
            )
        ],
    )
