"""The gradients of a model: how many, how large, and in which order the backward pass makes them."""

from __future__ import annotations

import dataclasses
from typing import Iterable

FLOAT32_BYTES = 4
# Parts into which gradients of unknown structure are divided.
_UNKNOWN_PARTS = 50


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer, or a group of variables whose gradients appear together.

    Attributes:
        name: For a reader.
        parameters: Trainable parameters.
        work: Multiplications of its forward pass for one example; only the relation between layers matters.
    """

    name: str
    parameters: int
    work: float


@dataclasses.dataclass(frozen=True)
class Gradients:
    """All gradients of a model, layers in the order of the forward pass.

    Attributes:
        title: What they are of.
        layers: With parameters; those without have no gradient but may have work.
        structure: Whether the layers are those of a known architecture.
    """

    title: str
    layers: tuple[Layer, ...]
    structure: bool = True

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def size(self) -> int:
        """Bytes as float32, the type in which Keras reduces them, also under mixed precision."""
        return FLOAT32_BYTES * self.parameters

    def ready(self) -> list[tuple[int, float]]:
        """Parameters of each gradient and the share of the backward pass after which it exists, in that order.

        Gradients of a layer are complete when its part of the backward pass is over; its length is taken as
        proportional to the layer's work.
        """
        whole = sum(layer.work for layer in self.layers)
        done, found = 0.0, []
        for layer in reversed(self.layers):
            done += layer.work
            if layer.parameters:
                found.append((layer.parameters, done / whole if whole else 1.0))
        return found


def gradients_of(title: str, layers: Iterable[Layer]) -> Gradients:
    """The gradients of a known architecture."""
    return Gradients(title, tuple(layers))


def unknown_gradients(parameters: int) -> Gradients:
    """Gradients of which only the number is known: equal parts, spread evenly over the backward pass.

    Args:
        parameters: Trainable parameters, at least 1.
    """
    parts = min(_UNKNOWN_PARTS, parameters)
    cuts = [parameters * part // parts for part in range(parts + 1)]
    layers = [Layer(f"part {part}", cuts[part + 1] - cuts[part], 1.0) for part in range(parts)]
    return Gradients(f"{parameters:,} parameters", tuple(layers), structure=False)
