"""Keras 2: a model called on placeholders of a full shape."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfvolta.bridge.keras2_layers import input_spec, own_variables
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_probe import untouched_seeds
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


def symbolic_call(package: Package, model: Any, batch_size: int, input_shape: InputShape) -> SymbolicCall:
    """See ``tfvolta.bridge.base.Bridge.layer_figures``.

    Raises:
        BridgeError: The inputs are not known, or the model cannot be called on them.
    """
    if input_shape is not None and isinstance(model, package.sequential) and not model.built:
        # A call would fix the batch size.
        model.build(tf.nest.map_structure(lambda spec: spec.shape, specs_of_shapes(input_shape, None)))
    args, keywords = _specs(package, model)
    args = [full_specs(args[0] if args else None, batch_size, input_shape), *args[1:]]
    graph = scratch_graph()
    record = CallRecord(lambda layer: isinstance(layer, package.keras.layers.RNN))
    result = SymbolicCall(graph, record)
    keywords = {name: full_specs(spec, batch_size, None) for name, spec in keywords.items()}
    if model._expects_training_arg:
        keywords["training"] = True
    with untouched_seeds(package, model), graph.as_default(), record.watching(package.layer):
        given, named = placeholders((args, keywords))
        result.inputs = tensors_of((given, named))
        try:
            result.outputs = tensors_of(model(*given, **named))
        except Exception as error:  # whatever a user's call raises is the finding
            raise failed(model, error) from error
        finally:
            model._clear_losses()
        result.forward_operations = len(graph.get_operations())
    return result


def _specs(package: Package, model: Any) -> tuple[list[Any], dict[str, Any]]:
    """What a model is called with: from its graph, else from its first call; empty where neither is there."""
    if isinstance(model, package.functional) and getattr(model, "inputs", None):
        return [tf.nest.map_structure(lambda item: tf.TensorSpec(item.shape, item.dtype), model.input)], {}
    spec = input_spec(model)
    return ([], {}) if spec is None else (list(spec[0]), dict(spec[1]))


class FootprintAdapter:
    """What the part of the bridge needs of Keras 2."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.layer_class = package.layer

    def symbolic_call(self, model: Any, batch_size: int, input_shape: InputShape) -> SymbolicCall:
        """Calls a model on placeholders."""
        return symbolic_call(self.package, model, batch_size, input_shape)

    def weights_of(self, layer: Any, whole: bool) -> list[tuple[Any, bool]]:
        """Variables of a layer, with those of the layers inside if ``whole``, and whether each is trained."""
        return weights_of(layer, whole)

    def is_whole(self, layer: Any) -> bool:
        """Whether the layers inside a layer are part of it."""
        return isinstance(layer, self.package.keras.layers.RNN)


def weights_of(layer: Any, whole: bool) -> list[tuple[Any, bool]]:
    """Variables of a layer and whether each is trained.

    Args:
        layer: The layer.
        whole: With those of the layers inside it.
    """
    weights = layer.weights if whole else own_variables(layer)
    return [(weight, bool(weight.trainable and layer.trainable)) for weight in weights]
