"""Keras 3: the layers below a model, their paths, and which of them make the model's outputs."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import keras
from keras.src.models.functional import Functional
from keras.src.ops.operation import Operation

from tfvolta.bridge import keras3_probe


def children(layer: Any) -> list[Any]:
    """The layers directly below a layer, those in its lists and dictionaries, its cells and wrapped layers included."""
    return list(layer._layers)


def named_layers(model: Any) -> list[tuple[str, Any]]:
    """Every layer below a model, parents first, each once, with a path of names that is unique in the model."""
    named: list[tuple[str, Any]] = []
    seen: set[int] = {id(model)}
    paths: set[str] = set()

    def visit(parent: Any, prefix: str) -> None:
        for child in children(parent):
            if id(child) in seen:
                continue
            seen.add(id(child))
            path = base = prefix + child.name
            repeat = 1
            while path in paths:  # a subclassed model may give two layers one name
                repeat += 1
                path = f"{base}:{repeat}"
            paths.add(path)
            named.append((path, child))
            visit(child, path + "/")

    visit(model, "")
    return named


def descendants(layer: Any) -> list[Any]:
    """Every layer below a layer, each once."""
    return [child for _, child in named_layers(layer)]


def own_variables(layer: Any) -> list[Any]:
    """Variables that a layer holds itself, not through a layer below it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def called_classes() -> list[Any]:
    """Layers, and the bare operations of functional models, of which layers are a kind."""
    return [keras.Layer, Operation]


def is_input(layer: Any) -> bool:
    """Whether a layer only declares an input."""
    return isinstance(layer, keras.layers.InputLayer)


def graph_of(layer: Any) -> Optional[Any]:
    """The functional graph that a model runs, or None where its ``call`` is the user's own."""
    if isinstance(layer, keras.Sequential):
        return layer._functional if type(layer).call is keras.Sequential.call else None
    if isinstance(layer, Functional) and type(layer).call is Functional.call:
        return layer
    return None


def output_makers(model: Any) -> Optional[list[Any]]:
    """The layers that compute a model's outputs, each with the layers inside it.

    Layers that only move values (``Reshape``, ``Dropout``, ``Concatenate``, ...) and operations outside layers are
    looked through, because a softmax below a reshape is still the output; they are listed too, so that they do not
    round what was computed. A functional or Sequential model is read from its graph, any other from one symbolic call.

    Returns:
        The layers, or None where they cannot be known: the model is not built, or cannot be called symbolically.
    """
    makers: dict[int, Any] = {}
    graph = graph_of(model)
    if graph is not None:
        for tensor in graph.outputs:
            for layer in _makers_of(tensor):
                makers[id(layer)] = layer
    elif isinstance(model, keras.Sequential) and type(model).call is keras.Sequential.call:
        makers = {id(layer): layer for layer in _sequential_makers(model)}
    else:
        trace = keras3_probe.trace(model)
        if trace is None or trace.error is not None:
            return None
        makers = {id(layer): layer for layer in trace.producers()}
    for layer in list(makers.values()):
        makers.update((id(inner), inner) for inner in descendants(layer))
    return list(makers.values())


def _makers_of(tensor: Any) -> Iterator[Any]:
    """Layers that compute one tensor of a functional graph."""
    pending, seen = [tensor], set()
    while pending:
        operation, node_index, tensor_index = pending.pop()._keras_history
        if (id(operation), node_index) in seen or is_input(operation):
            continue
        seen.add((id(operation), node_index))
        graph = graph_of(operation) if isinstance(operation, keras.Layer) else None
        if graph is not None:
            pending.append(graph.outputs[tensor_index])
            continue
        if isinstance(operation, keras.Layer):
            yield operation
        if not isinstance(operation, keras.Layer) or isinstance(operation, keras3_probe.SHAPE_ONLY):
            pending.extend(operation._inbound_nodes[node_index].input_tensors)


def _sequential_makers(model: Any) -> Iterator[Any]:
    """Layers that compute the output of a Sequential model that has no graph yet."""
    for layer in reversed(model.layers):
        if isinstance(layer, keras.Model):
            yield from output_makers(layer) or [layer]
            return
        yield layer
        if not isinstance(layer, keras3_probe.SHAPE_ONLY):
            return
