"""The part of every bridge that makes a model compute activations again instead of keeping them."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Protocol

from tfvolta.bridge import recompute_layers, recompute_ops
from tfvolta.bridge.recompute_choice import choose
from tfvolta.bridge.recompute_graph import GraphPlan
from tfvolta.bridge.recompute_records import RecomputeRequest, RecomputeState, SegmentState
from tfvolta.bridge.recompute_units import TreeAdapter, Unit
from tfvolta.errors import BridgeError, Problem
from tfvolta.footprint.layer import LayerFigures

_STATE = "_tfvolta_recompute_state"


class RecomputeAdapter(TreeAdapter, Protocol):
    """What differs between Keras 2 and Keras 3."""

    def own_recompute(self, model: Any) -> list[str]:
        """Paths of layers that Keras itself shall compute again."""

    def install(self, graph: Any, plan: GraphPlan) -> None:
        """Makes a graph run by a plan."""

    def uninstall(self, graph: Any) -> None:
        """Makes a graph run as Keras runs it."""

    def forget_train_function(self, model: Any) -> None:
        """Makes the next train step trace anew."""

    def prepare(self, model: Any) -> None:
        """Builds a model that is not built, where the running fit tells its inputs."""

    def input_shape(self, model: Any) -> Optional[Any]:
        """Shapes of the inputs of a model that was never called, without the batch; None where they are known to it."""


class _Bridge(Protocol):
    """What the part needs of the bridge that it belongs to."""

    recompute_adapter: RecomputeAdapter

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""

    def layer_figures(self, model: Any, batch_size: int, input_shape: Any = None) -> list[LayerFigures]:
        """Figures of the layers."""

    def undo_recompute(self, model: Any) -> bool:
        """Makes a model keep its activations again."""


@dataclasses.dataclass
class _Installed:
    """What was put on a model, kept on it.

    Attributes:
        state: How it computes activations again.
        graphs: Graphs that run by a plan.
        layers: Layers that do.
    """

    state: RecomputeState
    graphs: list[Any]
    layers: list[Any]

    def __deepcopy__(self, memo: Any) -> None:
        """A copied model runs as Keras runs it."""


class RecomputePart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def recompute(self: _Bridge, model: Any, request: RecomputeRequest) -> RecomputeState:
        """Makes a model compute activations again from its next train step on, in place of an earlier request."""
        self.undo_recompute(model)
        adapter = self.recompute_adapter
        by_keras = adapter.own_recompute(model)
        if by_keras:
            raise _two_at_once(by_keras)
        recompute_ops.install()
        adapter.prepare(model)

        def figures(batch: int) -> list[LayerFigures]:
            return self.layer_figures(model, batch, adapter.input_shape(model))

        choice = choose(adapter, model, self.layers(model), request, figures)
        pairs = [(unit, SegmentState(unit.name, unit.layers)) for unit in choice.units]
        state = RecomputeState(tuple(segment for _, segment in pairs), choice.left_out, choice.said)
        installed = _Installed(state, [], [])
        _install(adapter, pairs, installed, _refusal if request.refuse and request.layers else _nothing)
        model.__dict__[_STATE] = installed
        adapter.forget_train_function(model)
        return state

    def recompute_state(self, model: Any) -> Optional[RecomputeState]:
        """How a model computes activations again; None where it does not."""
        installed = model.__dict__.get(_STATE)
        return None if installed is None else installed.state

    def undo_recompute(self: _Bridge, model: Any) -> bool:
        """Makes a model keep its activations again; False where it does."""
        installed = model.__dict__.pop(_STATE, None)
        if installed is None:
            return False
        for graph in installed.graphs:
            self.recompute_adapter.uninstall(graph)
        for layer in installed.layers:
            recompute_layers.uninstall(layer)
        self.recompute_adapter.forget_train_function(model)
        return True


def _install(
    adapter: RecomputeAdapter, pairs: list[tuple[Unit, SegmentState]], installed: _Installed, refuse: Any
) -> None:
    plans: dict[int, GraphPlan] = {}
    for unit, state in sorted(pairs, key=lambda pair: pair[0].span):
        if unit.graph is None:
            recompute_layers.install(adapter, unit.layer, state, refuse)
            installed.layers.append(unit.layer)
            continue
        if id(unit.graph) not in plans:
            plans[id(unit.graph)] = GraphPlan(adapter, [], [], refuse)
            adapter.install(unit.graph, plans[id(unit.graph)])
            installed.graphs.append(unit.graph)
        plans[id(unit.graph)].spans.append(unit.span)
        plans[id(unit.graph)].states.append(state)


def _nothing(state: SegmentState) -> None:
    """A segment that cannot be repeated is trained plainly, and named afterwards."""


def _refusal(state: SegmentState) -> None:
    raise BridgeError(
        "A layer cannot be computed again.",
        [
            Problem(
                where=f"memory.recompute.layers: {state.name}",
                expected="a layer that computes the same a second time",
                received=state.name,
                why=f"it {state.fault}",
                fix=f"take {state.name} out of the list, or set memory.recompute.every: n, which leaves it out",
            )
        ],
    )


def _two_at_once(paths: list[str]) -> BridgeError:
    shown = ", ".join(paths[:6]) + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")
    return BridgeError(
        "Keras is to compute activations again already.",
        [
            Problem(
                where="memory.recompute",
                expected="a model that was made outside of keras.RematScope",
                received=f"layers made inside of one: {shown}",
                why="each would be computed a third time, and Keras's own way fails in fit wherever it passes keyword"
                " arguments",
                fix="make the model outside of keras.RematScope; memory.recompute works on the plain model",
            )
        ],
    )
