"""Keras 3: a model called on placeholders of a full shape."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
from keras.src import backend, tree
from keras.src.backend.common.symbolic_scope import SymbolicScope

from tfvolta.bridge import keras3_probe
from tfvolta.bridge.layer_calls import CallRecord
from tfvolta.bridge.symbolic_call import (
    InputShape,
    SymbolicCall,
    failed,
    full_specs,
    placeholders,
    scratch_graph,
    specs_of_shapes,
    tensors_of,
)


def symbolic_call(model: Any, batch_size: int, input_shape: InputShape) -> SymbolicCall:
    """See ``tfvolta.bridge.base.Bridge.layer_figures``.

    Raises:
        BridgeError: The inputs are not known, or the model cannot be called on them.
    """
    if input_shape is not None and isinstance(model, keras.Sequential) and not model.built:
        shapes = tree.map_structure(lambda spec: tuple(spec.shape), specs_of_shapes(input_shape, None))
        model.build(shapes)  # a call would fix the batch size
    arguments, keywords = keras3_probe.input_specs(model) or ((None,), {})
    if keywords and input_shape is None:
        keywords = {name: full_specs(spec, batch_size, None) for name, spec in keywords.items()}
        arguments = ()
    else:
        arguments, keywords = (full_specs(arguments[0] if arguments else None, batch_size, input_shape),), {}
    graph = scratch_graph()
    record = CallRecord(lambda layer: isinstance(layer, keras.layers.RNN))
    result = SymbolicCall(graph, record)
    training = {"training": True} if model._call_has_training_arg else {}
    scopes = (backend.StatelessScope(collect_losses=False), SymbolicScope(), graph.as_default())
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(scope)
        stack.enter_context(record.watching(keras.Layer))
        given, named = placeholders((list(arguments), keywords))
        result.inputs = tensors_of((given, named))
        try:
            result.outputs = tensors_of(model(*given, **named, **training))
        except Exception as error:  # whatever a user's call raises is the finding
            raise failed(model, error) from error
        result.forward_operations = len(graph.get_operations())
    return result


class FootprintAdapter:
    """What the part of the bridge needs of Keras 3."""

    layer_class = keras.Layer

    def symbolic_call(self, model: Any, batch_size: int, input_shape: InputShape) -> SymbolicCall:
        """Calls a model on placeholders."""
        return symbolic_call(model, batch_size, input_shape)

    def weights_of(self, layer: Any, whole: bool) -> list[tuple[Any, bool]]:
        """Variables of a layer, with those of the layers inside if ``whole``, and whether each is trained."""
        return weights_of(layer, whole)

    def is_whole(self, layer: Any) -> bool:
        """Whether the layers inside a layer are part of it."""
        return isinstance(layer, keras.layers.RNN)


def weights_of(layer: Any, whole: bool) -> list[tuple[Any, bool]]:
    """Variables of a layer and whether each is trained.

    Args:
        layer: The layer.
        whole: With those of the layers inside it.
    """
    weights = layer.weights if whole else [*layer._trainable_variables, *layer._non_trainable_variables]
    return [(weight, bool(weight.trainable and layer.trainable)) for weight in weights]
