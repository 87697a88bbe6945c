"""Keras 2: what computing activations again needs to know of models, calls and variables.

Source: keras/src/engine/functional.py, ``_run_internal_graph``; keras/src/engine/base_layer.py, ``Layer.__call__``;
keras/src/engine/base_layer_utils.py, ``CallContext``; keras/src/mixed_precision/autocast_variable.py.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import keras2_layers, running_fit
from tfvolta.bridge.keras2_package import Package, load_package
from tfvolta.bridge.recompute_call import is_due
from tfvolta.bridge.recompute_graph import PLAN, Node, PlannedGraphs, run_graph


class _Held:
    """A tensor that a graph asks for by ``pop``, as often as it likes."""

    def __init__(self, tensor: Any):
        self._tensor = tensor

    def pop(self) -> Any:
        """The tensor."""
        return self._tensor


def _run_by_plan(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """Replaces ``Functional._run_internal_graph``."""
    plan = self.__dict__.get(PLAN)
    if plan is None or not is_due():
        return type(self)._run_internal_graph(self, inputs, training=training, mask=mask)
    flat = self._flatten_to_reference_inputs(inputs)
    masks = [None] * len(flat) if mask is None else self._flatten_to_reference_inputs(mask)
    tensors = {}
    for symbol, value, its_mask in zip(self.inputs, flat, masks):
        value._keras_mask = its_mask
        tensors[str(id(symbol))] = self._conform_to_reference_input(value, ref_input=symbol)
    run_graph(plan.adapter, self, plan, tensors, None)
    return tf.nest.pack_sequence_as(self._nested_outputs, [tensors[str(id(symbol))] for symbol in self.outputs])


class _Graphs(PlannedGraphs):
    """Functional graphs of Keras 2.15 and tf_keras."""

    keras_run = "_run_internal_graph"
    run_by_plan = staticmethod(_run_by_plan)

    def __init__(self, package: Package):
        self.package = package

    def graph_of(self, layer: Any) -> Optional[Any]:
        """See ``Adapter``."""
        functional, sequential = self.package.functional, self.package.sequential
        if not isinstance(layer, functional) or not getattr(layer, "_nodes_by_depth", None):
            return None
        own = type(layer).call not in (functional.call, sequential.call)
        return None if own or not getattr(layer, "_graph_initialized", True) else layer

    def children(self, layer: Any) -> list[Any]:
        """The layers directly below one."""
        return list(layer._flatten_layers(recursive=False, include_self=False))

    def is_layer(self, operation: Any) -> bool:
        """Whether an operation is a layer of the model's maker, and not a TensorFlow call in a functional model."""
        return not keras2_layers.is_operation(operation)

    def nodes(self, graph: Any) -> list[Node]:
        """See ``Adapter``."""
        found = []
        for depth in sorted(graph._nodes_by_depth, reverse=True):
            for node in graph._nodes_by_depth[depth]:
                if not node.is_input:
                    outputs = tf.nest.flatten(node.outputs)
                    found.append(
                        Node(
                            node.layer,
                            tuple(node.flat_input_ids),
                            tuple(node.flat_output_ids),
                            tuple((tuple(tensor.shape), tf.as_dtype(tensor.dtype).name) for tensor in outputs),
                            bool(node.layer.weights),
                            node,
                        )
                    )
        return found

    def run(self, graph: Any, node: Node, tensors: dict[Any, Any], arguments: Any) -> list[Any]:
        """See ``Adapter``."""
        positional, keywords = node.call.map_arguments({key: _Held(tensors[key]) for key in node.inputs})
        results: list[Any] = tf.nest.flatten(node.operation(*positional, **keywords))
        return results

    def output_keys(self, graph: Any) -> list[Any]:
        """See ``Adapter``."""
        return [str(id(tensor)) for tensor in graph.outputs]


class Keras2Recompute(_Graphs):
    """``tfvolta.bridge.recompute_part.RecomputeAdapter``."""

    def surroundings(self) -> Callable[[], ContextManager[Any]]:
        """See ``Adapter``."""
        call = self.package.private("engine.base_layer_utils").call_context()
        state, inside = call._state, call.in_call
        dtype = getattr(self.package.autocast._autocast_dtype, "dtype", None)
        status = tf.__internal__.autograph.control_status_ctx()

        @contextlib.contextmanager
        def again() -> Iterator[None]:
            now = self.package.private("engine.base_layer_utils").call_context()
            former, was_inside = now._state, now.in_call
            now._state, now.in_call = state, inside
            try:
                with self.package.autocast.enable_auto_cast_variables(dtype), status:
                    yield
            finally:
                now._state, now.in_call = former, was_inside

        return again

    def losses(self, layer: Any) -> int:
        """See ``Adapter``."""
        inside = layer._flatten_layers()
        return sum(len(each._losses) + len(each._eager_losses) + len(each._callable_losses) for each in inside)

    def obstacle(self, layer: Any) -> str:
        """See ``Adapter``."""
        for each in layer._flatten_layers():
            if getattr(each, "stateful", False) and hasattr(each, "cell"):
                return f"{each.name} carries its state from batch to batch (stateful=True)"
            if getattr(each, "_activity_regularizer", None) is not None:
                return f"{each.name} adds a loss of its own (activity_regularizer)"
            if each.dynamic:
                return f"{each.name} runs Python code (dynamic=True)"
        return ""

    def own_recompute(self, model: Any) -> list[str]:
        """Keras 2 computes nothing again by itself."""
        del model
        return []

    def forget_train_function(self, model: Any) -> None:
        """Makes the next train step trace anew."""
        if getattr(model, "train_function", None) is not None:
            model.train_function = model.train_tf_function = None
            made = model.make_train_function(force=True)
            if model.train_function is None:  # an overriding method that only returns the function
                model.train_function = made

    def prepare(self, model: Any) -> None:
        """Builds a Sequential model that is not built, as its first call would, where the running fit tells its input.

        Models of other kinds hold their layers before they are built.
        """
        shape = self.input_shape(model) if isinstance(model, self.package.sequential) else None
        if isinstance(shape, list):
            model.build((None, *shape))

    def input_shape(self, model: Any) -> Optional[Any]:
        """Shapes that the data of the running fit have; None where the model was built or they are not known."""
        handler = (running_fit.local_variables(model) or {}).get("data_handler")
        spec = getattr(getattr(handler, "_dataset", None), "element_spec", None)
        if model.built or spec is None:
            return None
        inputs = spec[0] if isinstance(spec, tuple) else spec
        shapes = tf.nest.map_structure(lambda part: getattr(part, "shape", tf.TensorShape(None)), inputs)
        if any(shape.rank is None or None in shape[1:].as_list() for shape in tf.nest.flatten(shapes)):
            return None
        return tf.nest.map_structure(lambda shape: shape[1:].as_list(), shapes)

    def convert(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's ``call`` as Keras runs it: Python's branches and loops converted in a script's own class."""
        layer = getattr(call, "__self__", None)
        utils = self.package.private("engine.base_layer_utils")
        if layer is None or not utils.is_subclassed(layer) or utils.from_saved_model(layer):
            return call
        autograph = tf.__internal__.autograph
        converted: Callable[..., Any] = autograph.tf_convert(call, autograph.control_status_ctx())
        return converted


@functools.cache
def adapter(stack: str) -> Keras2Recompute:
    """The adapter of a stack."""
    return Keras2Recompute(load_package(stack))
