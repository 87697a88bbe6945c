"""Keras 3: what computing activations again needs to know of models, calls and variables.

Source: keras/src/models/functional.py and keras/src/ops/function.py, ``_run_through_graph``; keras/src/layers/layer.py,
``Layer.__call__`` and ``CallContext``; keras/src/backend/common/stateless_scope.py.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, Optional

import keras
from keras.src import tree
from keras.src.backend.common import global_state

from tfvolta.bridge import keras3_layers, keras3_probe
from tfvolta.bridge.recompute_call import is_due
from tfvolta.bridge.recompute_graph import PLAN, Node, PlannedGraphs, run_graph

_SURROUNDINGS = ("current_call_ctx", "autocast_scope", "name_scope_stack")


def _run_by_plan(self: Any, inputs: Any, operation_fn: Any = lambda operation: operation, call_fn: Any = None) -> Any:
    """Replaces ``Function._run_through_graph``."""
    plan = self.__dict__.get(PLAN)
    flat = tree.flatten(inputs)
    symbolic = any(isinstance(tensor, keras.KerasTensor) for tensor in flat)
    if plan is None or call_fn is not None or symbolic or not is_due():
        return type(self)._run_through_graph(self, inputs, operation_fn=operation_fn, call_fn=call_fn)
    tensors = {id(symbol): value for symbol, value in zip(self.inputs, flat)}
    run_graph(plan.adapter, self, plan, tensors, operation_fn)
    return tree.pack_sequence_as(self._outputs_struct, [tensors[id(symbol)] for symbol in self.outputs])


class _Graphs(PlannedGraphs):
    """Functional graphs of Keras 3."""

    keras_run = "_run_through_graph"
    run_by_plan = staticmethod(_run_by_plan)

    def graph_of(self, layer: Any) -> Optional[Any]:
        """See ``Adapter``."""
        return keras3_layers.graph_of(layer) if isinstance(layer, keras.Layer) else None

    def children(self, layer: Any) -> list[Any]:
        """The layers directly below one; none for an operation outside of layers."""
        return keras3_layers.children(layer) if isinstance(layer, keras.Layer) else []

    def is_layer(self, operation: Any) -> bool:
        """Whether an operation is a layer."""
        return isinstance(operation, keras.Layer)

    def nodes(self, graph: Any) -> list[Node]:
        """See ``Adapter``."""
        found = []
        for depth in sorted(graph._nodes_by_depth, reverse=True):
            for node in graph._nodes_by_depth[depth]:
                if node.operation and not node.is_input:
                    found.append(
                        Node(
                            node.operation,
                            tuple(id(tensor) for tensor in node.input_tensors),
                            tuple(id(tensor) for tensor in node.outputs),
                            tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in node.outputs),
                            bool(getattr(node.operation, "weights", ())),
                            node,
                        )
                    )
        return found

    def run(self, graph: Any, node: Node, tensors: dict[Any, Any], arguments: Any) -> list[Any]:
        """See ``Adapter``."""
        positional, keywords = node.call.arguments.fill_in(tensors)
        results: list[Any] = tree.flatten(arguments(graph._get_operation_for_node(node.call))(*positional, **keywords))
        return results

    def output_keys(self, graph: Any) -> list[Any]:
        """See ``Adapter``."""
        return [id(tensor) for tensor in graph.outputs]


class Keras3Recompute(_Graphs):
    """``tfvolta.bridge.recompute_part.RecomputeAdapter``."""

    def surroundings(self) -> Callable[[], ContextManager[Any]]:
        """See ``Adapter``."""
        known = {name: global_state.get_global_attribute(name) for name in _SURROUNDINGS}

        @contextlib.contextmanager
        def again() -> Iterator[None]:
            former = {name: global_state.get_global_attribute(name) for name in _SURROUNDINGS}
            for name, value in known.items():
                global_state.set_global_attribute(name, value)
            try:
                # Under a strategy an assignment would gather all replicas; in here it only changes what is read next.
                with keras.StatelessScope():
                    yield
            finally:
                for name, value in former.items():
                    global_state.set_global_attribute(name, value)

        return again

    def losses(self, layer: Any) -> int:
        """See ``Adapter``."""
        if not self.is_layer(layer):
            return 0
        return sum(len(each._losses) for each in [layer, *keras3_layers.descendants(layer)])

    def obstacle(self, layer: Any) -> str:
        """See ``Adapter``."""
        if not self.is_layer(layer):
            return ""
        for each in [layer, *keras3_layers.descendants(layer)]:
            if getattr(each, "stateful", False) and isinstance(each, keras.layers.RNN):
                return f"{each.name} carries its state from batch to batch (stateful=True)"
            if each.activity_regularizer is not None:
                return f"{each.name} adds a loss of its own (activity_regularizer)"
        return ""

    def own_recompute(self, model: Any) -> list[str]:
        """Paths of layers that Keras itself shall compute again (``RematScope``)."""
        named = [(model.name, model), *keras3_layers.named_layers(model)]
        return [path for path, layer in named if getattr(layer, "_remat_mode", None) is not None]

    def forget_train_function(self, model: Any) -> None:
        """Makes the next train step trace anew."""
        if getattr(model, "train_function", None) is not None:
            model.make_train_function(force=True)

    def prepare(self, model: Any) -> None:
        """Builds a model that is not built, where the running fit tells its inputs."""
        if not model.built or (isinstance(model, keras.Sequential) and model._functional is None):
            keras3_probe.trace(model)

    def input_shape(self, model: Any) -> None:
        """A model that was built knows its inputs."""
        del model

    def convert(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's ``call`` as Keras runs it."""
        return call
