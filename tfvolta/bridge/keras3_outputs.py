"""Keras 3: the precision of what a model returns, and outputs kept in float32 in a model that stays as it is."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import keras
from keras.src.ops.operation import Operation

from tfvolta.bridge import keras3_functions, keras3_layers, keras3_precision, keras3_probe

_HALVES = ("float16", "bfloat16")


def half_outputs(model: Any) -> Optional[tuple[str, ...]]:
    """See ``tfvolta.bridge.base.Bridge.half_outputs``.

    A layer of Keras's own at the end of a graph returns its compute dtype; any other end is seen in a symbolic call.
    """
    named = keras3_layers.named_layers(model)
    if model.built and not any(_is_half(layer) for layer in [model, *(layer for _, layer in named)]):
        return ()
    ends = _ends(model)
    if ends is not None:
        halves = [layer for layer in ends if _is_half(layer)]
        return _paths(named, halves, model)
    if not model.built:
        return None  # a symbolic call would build it, and looking must change nothing
    trace = keras3_probe.trace(model)
    if trace is None or trace.error is not None:
        return None
    halves = []
    for tensor in trace.outputs:
        if tensor.dtype.name not in _HALVES:
            continue
        makers = dataclasses.replace(trace, outputs=[tensor]).producers()
        halves += [layer for layer in makers if _is_half(layer)] or makers or [model]
    return _paths(named, halves, model)


def float32_outputs(model: Any) -> None:
    """See ``tfvolta.bridge.base.Bridge.float32_outputs``."""
    for layer in keras3_layers.output_makers(model) or ():
        if not keras3_layers.is_input(layer) and _is_half(layer):
            layer.dtype_policy = keras.DTypePolicy("float32")
    if half_outputs(model) and keras3_layers.graph_of(model) is None:
        keras3_precision.cast_output(model)
    keras3_functions.reset(model)


def _is_half(layer: Any) -> bool:
    return not keras3_layers.is_input(layer) and layer.compute_dtype in _HALVES


def _ends(model: Any) -> Optional[list[Any]]:
    """Layers that a graph ends in, if each is a plain layer of Keras's own; None where it takes a call to know."""
    graph = keras3_layers.graph_of(model)
    if graph is None and isinstance(model, keras.Sequential) and model.layers and not model.built:
        return [model.layers[-1]] if _is_plain(model.layers[-1]) else None
    if graph is None:
        return None
    found = []
    for tensor in graph.outputs:
        operation: Operation = tensor._keras_history.operation
        inner = keras3_layers.graph_of(operation) if isinstance(operation, keras.Layer) else None
        if inner is not None and len(inner.outputs) == 1:
            ends = _ends(operation)
            if ends is None:
                return None
            found += ends
        elif _is_plain(operation) and keras.backend.is_float_dtype(tensor.dtype):
            found.append(operation)
        else:
            return None
    return found


def _is_plain(operation: Any) -> bool:
    own = isinstance(operation, keras.Layer) and keras3_probe.is_builtin(operation)
    return own and not operation._layers and not isinstance(operation, (keras.layers.Lambda, keras.layers.InputLayer))


def _paths(named: list[tuple[str, Any]], layers: list[Any], model: Any) -> tuple[str, ...]:
    wanted = {id(layer) for layer in layers}
    paths = [path for path, layer in named if id(layer) in wanted]
    return tuple(paths) if id(model) not in wanted else (*paths, model.name)
