"""The layers of a Keras 2 model: a tree with a unique path for each, and what kind of layer each one is."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Optional, Sequence

from tfvolta.bridge import layer_patterns
from tfvolta.bridge.keras2_package import Package

# Layers that Keras makes of TensorFlow calls on symbolic tensors; they hold no weights and do not cast what they get.
OPERATION_LAYERS = frozenset(
    {"TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer", "ClassMethod", "InstanceMethod", "InstanceProperty"}
)
# Layers that hand their input on, value for value.
PASSING_LAYERS = frozenset({"Reshape", "Flatten", "Permute", "RepeatVector", "Identity"}) | OPERATION_LAYERS


@dataclasses.dataclass(frozen=True)
class Node:
    """One layer below a model.

    Attributes:
        path: Names from the model down, joined by slashes; unique.
        layer: The layer.
        parent: The layer that holds it; the model itself at the top.
        ancestors: Layers between the model and this one, outermost first.
    """

    path: str
    layer: Any
    parent: Any
    ancestors: tuple[Any, ...] = ()


def nodes(model: Any) -> list[Node]:
    """Every layer below a model, each once, in the order in which Keras holds them; outer layers before inner ones."""
    return list(_walk(model, "", (), {id(model)}, set()))


def _walk(parent: Any, prefix: str, ancestors: tuple[Any, ...], seen: set[int], paths: set[str]) -> Iterator[Node]:
    for child in parent._flatten_layers(recursive=False, include_self=False):
        if id(child) in seen:
            continue
        seen.add(id(child))
        path = _unique(f"{prefix}{child.name}", paths)
        yield Node(path, child, parent, ancestors)
        yield from _walk(child, f"{path}/", (*ancestors, child), seen, paths)


def _unique(path: str, paths: set[str]) -> str:
    """The path, with a number where two layers of one container share a name."""
    candidate, number = path, 2
    while candidate in paths:
        candidate, number = f"{path}_{number}", number + 1
    paths.add(candidate)
    return candidate


def matches(node: Node, patterns: Sequence[str]) -> bool:
    """Whether a layer's class, name or path fits one of the shell patterns."""
    return layer_patterns.matches(node.path, node.layer, patterns)


def is_input(layer: Any) -> bool:
    """Whether a layer only marks a model's input; it neither computes nor casts."""
    return type(layer).__name__ == "InputLayer"


def is_operation(layer: Any) -> bool:
    """Whether Keras made the layer of a TensorFlow call in a functional model."""
    return type(layer).__name__ in OPERATION_LAYERS


def is_passing(layer: Any) -> bool:
    """Whether a layer hands its input on unchanged, or is a bare operation that takes its precision from its input."""
    return type(layer).__name__ in PASSING_LAYERS


def is_container(layer: Any) -> bool:
    """Whether a layer holds other layers."""
    return next(iter(layer._flatten_layers(recursive=False, include_self=False)), None) is not None


def is_predictable(package: Package, layer: Any) -> bool:
    """Whether a layer is known to compute under a mixed policy without a trial.

    Keras's own layers are, apart from those that run a script's code; a custom layer may mix dtypes in its ``call``.
    """
    own = package.is_own(layer) and type(layer).__name__ != "Lambda" and not is_operation(layer)
    return own and not getattr(layer, "stateful", False)


def policy_name(layer: Any) -> str:
    """Name of a layer's dtype policy."""
    return str(layer.dtype_policy.name)


def compute_dtypes(package: Package, model: Any) -> dict[str, str]:
    """Compute dtype by path, of layers that have variables or cast their inputs."""
    return {
        node.path: str(node.layer.compute_dtype)
        for node in nodes(model)
        if not is_input(node.layer) and (node.layer._autocast or own_variables(node.layer))
    }


def own_variables(layer: Any) -> list[Any]:
    """Variables that the layer holds itself, not through a layer below it."""
    return [*layer._trainable_weights, *layer._non_trainable_weights]


def input_spec(layer: Any) -> Optional[tuple[Sequence[Any], dict[str, Any]]]:
    """Positional and keyword argument specs of the layer's first call; None while it was never called."""
    return layer._get_save_spec(dynamic_batch=False, inputs_only=False) if layer._saved_model_inputs_spec else None
