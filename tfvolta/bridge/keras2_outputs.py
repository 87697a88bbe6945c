"""Which layers make a Keras 2 model's outputs: from the graph where there is one, else from a trial run."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge.keras2_layers import input_spec, is_input, is_operation, is_passing
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_probe import try_out


def output_makers(package: Package, model: Any) -> list[Any]:
    """Layers that make a model's floating outputs, and the ones before those that only pass values on.

    Returns:
        The layers; empty where the model has no graph and was never called.
    """
    if isinstance(model, package.functional) and getattr(model, "outputs", None):
        return _of_graph(package, model)
    if isinstance(model, package.sequential):
        return _of_stack(package, list(model.layers))
    spec = input_spec(model)
    return list(try_out(package, model, spec, training=False).makers) if spec else []


def _of_graph(package: Package, model: Any) -> list[Any]:
    """The last layers of a functional model; a nested model is followed to its own last layers."""
    found: list[Any] = []
    seen: set[tuple[int, int]] = set()
    pending = [tensor for tensor in model.outputs if tensor.dtype.is_floating]
    while pending:
        layer, node_index, _ = pending.pop()._keras_history
        if (id(layer), node_index) in seen or is_input(layer):
            continue
        seen.add((id(layer), node_index))
        makers = _inside(package, layer)
        found.extend(maker for maker in makers if not any(maker is known for known in found))
        if is_passing(layer):
            parents = layer._inbound_nodes[node_index].keras_inputs
            pending.extend(tensor for tensor in parents if tensor.dtype.is_floating)
    return found


def _of_stack(package: Package, layers: list[Any]) -> list[Any]:
    """The last layer of a Sequential without a graph, and the ones before it while they only pass values on."""
    found: list[Any] = []
    for layer in reversed(layers):
        found.extend(_inside(package, layer))
        if not is_passing(layer):
            break
    return found


def _inside(package: Package, layer: Any) -> list[Any]:
    """The layer, or the output layers of a nested model; nothing for a bare operation, which follows its input."""
    if isinstance(layer, package.model):
        return output_makers(package, layer) or [layer]
    return [] if is_operation(layer) else [layer]
