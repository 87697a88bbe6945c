"""Which layer made which operation of a graph: one symbolic call of a model with every layer call noted.

A layer's operations are those that its call added to a graph and that no layer inside it added. Operations of
functions that were traced in the call (loops, branches, compiled parts) belong to the operation that calls them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable, Iterator, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from tfvolta.footprint.layer import Shape
from tfvolta.footprint.operation import OPAQUE, Operation, products_of
from tfvolta.footprint.product import Product

# Attributes of an operation that hold the functions that it calls once.
_CALLED = ("f", "body", "then_branch")
_KEPT_ATTRIBUTES = (
    "transpose_a", "adj_x", "data_format", "equation", "time_major", "rnn_mode", "num_layers",
)  # fmt: skip
_LOOPS = ("While", "StatelessWhile")


@dataclasses.dataclass
class Call:
    """One call of one layer.

    Attributes:
        layer: The layer.
        graph: The graph that it was called in.
        first: Number of the first operation that it added to the graph.
        last: Number behind the last one.
        inputs: Tensors that it was called with.
        outputs: Tensors that it returned.
    """

    layer: Any
    graph: Any
    first: int
    last: int = 0
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()


class CallRecord:
    """Every layer call of a symbolic call of a model, outer ones before those inside them.

    Attributes:
        calls: In the order in which they began.
    """

    def __init__(self, whole: Callable[[Any], bool]) -> None:
        """Makes an empty record.

        Args:
            whole: Says of a layer whether the layers inside it are part of it, as the cells of a recurrent layer are.
        """
        self.calls: list[Call] = []
        self._whole = whole
        self._inside = 0

    @contextlib.contextmanager
    def watching(self, layer_class: Any) -> Iterator[CallRecord]:
        """Notes the calls of every layer while the block runs."""
        original = layer_class.__call__

        def call(layer: Any, *arguments: Any, **keywords: Any) -> Any:
            if self._inside:
                return original(layer, *arguments, **keywords)
            graph = tf.compat.v1.get_default_graph()
            noted = Call(layer, graph, _count(graph))
            self.calls.append(noted)
            is_whole = self._whole(layer)
            self._inside += is_whole
            try:
                outputs = original(layer, *arguments, **keywords)
            finally:
                self._inside -= is_whole
            noted.last = _count(graph)
            noted.inputs, noted.outputs = _tensors((arguments, keywords)), _tensors(outputs)
            return outputs

        layer_class.__call__ = call
        try:
            yield self
        finally:
            layer_class.__call__ = original

    def owners(self, graph: Any, default: Any = None) -> list[Any]:
        """The innermost layer that added each operation of a graph; ``default`` for those of no layer."""
        owners = [default] * _count(graph)
        for call in self.calls:  # an inner call comes later and takes its operations over
            if call.graph is graph:
                owners[call.first : call.last] = [call.layer] * (call.last - call.first)
        return owners


@dataclasses.dataclass
class Work:
    """What one layer computes.

    Attributes:
        products: Matrix products and convolutions.
        unknown: Why they cannot be counted; empty where they can.
    """

    products: list[Product] = dataclasses.field(default_factory=list)
    unknown: str = ""


def work_by_layer(
    record: CallRecord, outputs: Sequence[Any], model: Any, steps_of: Callable[[Any], Optional[int]]
) -> tuple[dict[int, Work], set[int]]:
    """What each layer computes, by the layer's id, and the ids of the graphs that are part of the computation.

    Args:
        record: The calls.
        outputs: What the model returned; operations that do not lead to it are left out, as TensorFlow does.
        model: Owner of operations outside its layers.
        steps_of: How often the loop of a layer runs; None where it is not known.
    """
    found: dict[int, Work] = {}
    reached: set[int] = set()

    def visit(graph: Any, outputs: Sequence[Any], default: Any, times: Optional[int]) -> None:
        reached.add(id(graph))
        needed = _needed(outputs)
        owners = record.owners(getattr(graph, "tfvolta_original", graph), default)
        for operation, owner in zip(graph.get_operations(), owners):
            if operation not in needed:
                continue
            work = found.setdefault(id(owner), Work())
            if operation.type in OPAQUE:
                work.unknown = f"{operation.type} runs code outside TensorFlow"
            for name in _called(operation):
                inner = function_graph(graph, name, operation)
                if inner is not None:
                    in_loop = operation.type in _LOOPS
                    visit(inner, inner.outputs, owner, _times(times, steps_of(owner)) if in_loop else times)
            try:
                products = products_of(plain(operation))
            except ValueError as error:
                work.unknown = str(error)
                continue
            if products and times is None:
                work.unknown = "a loop runs as often as the data say"
            work.products += [product.repeated(times or 1) for product in products]

    if outputs:
        visit(outputs[0].graph, outputs, model, 1)
    return found, reached


def _needed(outputs: Sequence[Any]) -> set[Any]:
    """Operations that lead to the outputs. Keras computes some results only to learn their shape."""
    needed: set[Any] = set()
    pending = [tensor.op for tensor in outputs]
    while pending:
        operation = pending.pop()
        if operation not in needed:
            needed.add(operation)
            pending.extend(tensor.op for tensor in operation.inputs)
            pending.extend(operation.control_inputs)
    return needed


def _times(outer: Optional[int], inner: Optional[int]) -> Optional[int]:
    return None if outer is None or inner is None else outer * inner


def _called(operation: Any) -> Iterator[str]:
    """Names of the functions that an operation calls, one branch of several."""
    for attribute in operation.node_def.attr:
        if attribute in _CALLED:
            yield operation.node_def.attr[attribute].func.name
        elif attribute == "branches":
            for function in operation.node_def.attr[attribute].list.func[:1]:
                yield function.name


def function_graph(graph: Any, name: str, operation: Any) -> Optional[Any]:
    """The graph of a function that a graph calls; None where TensorFlow has none of it.

    A function that was traced for any batch is taken with the shapes that it is called with here; its graph then
    has the graph of the trace, whose operations have the same order, as ``tfvolta_original``.
    """
    function = graph._get_function(name)
    while function is None and getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
        function = graph._get_function(name)
    traced = getattr(function, "graph", None)
    if traced is None or operation.node_def.attr["f"].func.name != name or not _is_vague(traced):
        return traced
    definition = type(function.cached_definition)()
    definition.CopyFrom(function.cached_definition)
    for attributes in (*definition.arg_attr.values(), *definition.node_def):  # shapes of the trace win otherwise
        attributes.attr.pop("_output_shapes", None)
    shapes = [tensor.shape for tensor in operation.inputs]
    with graph.as_default():
        exact = function_def_to_graph(definition, input_shapes=shapes, include_library_functions=True)
    names = [each.name for each in exact.get_operations()]
    exact.tfvolta_original = traced if names == [each.name for each in traced.get_operations()] else exact
    return exact


def _is_vague(graph: Any) -> bool:
    """Whether a function's graph leaves dimensions of its arguments open."""
    return any(tensor.dtype != tf.resource and not tensor.shape.is_fully_defined() for tensor in graph.inputs)


def plain(operation: Any) -> Operation:
    """An operation of a graph as plain data."""
    attributes = operation.node_def.attr
    dtype = tf.dtypes.as_dtype(attributes["T"].type).name if "T" in attributes and attributes["T"].type else ""
    kept = {name: _value(operation.get_attr(name)) for name in _KEPT_ATTRIBUTES if name in attributes}
    inputs = tuple(shape_of(tensor) for tensor in operation.inputs)
    return Operation(operation.type, dtype, inputs, tuple(shape_of(tensor) for tensor in operation.outputs), kept)


def _value(attribute: Any) -> Any:
    return attribute.decode() if isinstance(attribute, bytes) else attribute


def shape_of(tensor: Any) -> Optional[Shape]:
    """Shape of a tensor; None where something of it is not known."""
    return tuple(int(size) for size in tensor.shape) if tensor.shape.is_fully_defined() else None


def _count(graph: Any) -> int:
    return len(graph.get_operations())


def _tensors(structure: Any) -> tuple[Any, ...]:
    flat = tf.nest.flatten(structure, expand_composites=True)
    return tuple(item for item in flat if isinstance(item, tf.Tensor))
