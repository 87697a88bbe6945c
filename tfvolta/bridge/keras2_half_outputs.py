"""The precision of what a Keras 2 model returns, and outputs kept in float32 in a model that stays as it is."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from tfvolta.bridge.keras2_casts import cast_results
from tfvolta.bridge.keras2_conversion import Conversion
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_layers import input_spec, is_container, is_input, is_operation, nodes
from tfvolta.bridge.keras2_outputs import output_makers
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_probe import try_out

_HALVES = ("float16", "bfloat16")


class HalfOutputPart:
    """The part of the bridge that concerns the precision of outputs.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def half_outputs(self, model: Any) -> Optional[tuple[str, ...]]:
        """Paths of the layers whose float16 or bfloat16 results are outputs; None where they are not known yet.

        A plain layer of Keras's own at the end of a graph returns its compute dtype; any other end is seen in a trial.
        """
        layers = [node.layer for node in nodes(model)]
        if model.built and not any(_is_half(layer) for layer in [model, *layers]):
            return ()
        ends = _ends(self.package, model)
        if ends is not None:
            return _paths(model, [layer for layer in ends if _is_half(layer)])
        spec = _spec(self.package, model)
        if spec is None:
            return None
        trial = try_out(self.package, model, spec, training=False)
        if trial.culprit is not None:
            return None
        if not any(dtype in _HALVES for dtype in trial.floating):
            return ()
        halves = [layer for layer in trial.half_makers if _is_half(layer)]
        return _paths(model, halves or list(trial.half_makers)) or (model.name,)

    def float32_outputs(self, model: Any) -> None:
        """Keeps the layers that make the outputs in float32 and leaves the others as they are."""
        conversion = Conversion(self.package, model, "float32")
        for maker in output_makers(self.package, model):
            for layer in maker._flatten_layers():
                if not is_input(layer) and _is_half(layer):
                    conversion.keep_float32(layer)
        symbolic = isinstance(model, (self.package.functional, self.package.sequential))
        if not symbolic and self.half_outputs(model):
            cast_results(conversion.journal, model, tf.float32)
        reset_functions(model)


def _is_half(layer: Any) -> bool:
    return not is_input(layer) and layer.compute_dtype in _HALVES


def _ends(package: Package, model: Any) -> Optional[list[Any]]:
    """Layers that a graph ends in, if each is a plain layer of Keras's own; None where it takes a trial to know."""
    if isinstance(model, package.functional) and getattr(model, "outputs", None):
        last = [(tensor._keras_history.layer, tensor.dtype) for tensor in model.outputs]
    elif isinstance(model, package.sequential) and model.layers:
        last = [(model.layers[-1], tf.float32)]
    else:
        return None
    found: list[Any] = []
    for layer, dtype in last:
        inner = _ends(package, layer) if isinstance(layer, package.model) and len(last) == 1 else None
        if inner is not None:
            found += inner
        elif _is_plain(package, layer) and dtype.is_floating:
            found.append(layer)
        else:
            return None
    return found


def _is_plain(package: Package, layer: Any) -> bool:
    own = package.is_own(layer) and type(layer).__name__ != "Lambda" and not is_operation(layer)
    return own and not is_container(layer) and not is_input(layer)


def _spec(package: Package, model: Any) -> Optional[tuple[Sequence[Any], dict[str, Any]]]:
    """What a model is called with: from its first call, else from its graph."""
    spec = input_spec(model)
    if spec is None and isinstance(model, package.functional):
        structure = tf.nest.map_structure(lambda item: tf.TensorSpec(item.shape, item.dtype), model.input)
        return (structure,), {}
    return spec


def _paths(model: Any, layers: Sequence[Any]) -> tuple[str, ...]:
    wanted = {id(layer) for layer in layers}
    return tuple(node.path for node in nodes(model) if id(node.layer) in wanted)
