"""The figures of one layer: what it is called with, what it holds and what it computes."""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from tfvolta.footprint.product import Product

# Bytes of one element, by the name that Keras and TensorFlow give the type.
BYTES_OF_DTYPE = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip

Shape = tuple[int, ...]


def bytes_of(shape: Shape, dtype: str) -> int:
    """Bytes of a tensor; a type without a size of its own, such as ``resource`` or ``string``, counts as none."""
    return math.prod(shape) * BYTES_OF_DTYPE.get(dtype, 0)


@dataclasses.dataclass(frozen=True)
class WeightFigures:
    """One variable of a layer.

    Attributes:
        name: As Keras names it.
        shape: Its shape.
        dtype: The type in which it is stored, which under a mixed policy is not the one that it is computed in.
        trainable: Whether it gets a gradient.
    """

    name: str
    shape: Shape
    dtype: str
    trainable: bool

    @property
    def count(self) -> int:
        """Its elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Its bytes as stored."""
        return bytes_of(self.shape, self.dtype)


@dataclasses.dataclass(frozen=True)
class LayerFigures:
    """One layer below a model, with all its calls in one forward pass of the whole batch.

    Attributes:
        name: Path below the model, as in ``bridge.layers``; the model's own name for what its code does itself.
        kind: Name of its class.
        input_shapes: Of every tensor that it was called with, batch included, call after call.
        output_shapes: Of every tensor that it returned, likewise.
        compute_dtype: The type of its policy; what was computed in another one shows in the products.
        weights: Variables that it holds itself. Those of the layers below it stand in their own rows, except for the
            cells of a recurrent layer, which are part of it.
        multiply_adds: Multiplications, each with its addition, of matrix products and convolutions in the forward
            pass; 0 for layers that have none, None where it cannot be known: an operation written outside
            TensorFlow, or a shape that is not known before training.
        products: These matrix products and convolutions, in the order in which they are computed.
        calls: How often it is called in one forward pass; 0 for a layer that the model holds and does not call.
    """

    name: str
    kind: str
    input_shapes: tuple[Shape, ...]
    output_shapes: tuple[Shape, ...]
    compute_dtype: str
    weights: tuple[WeightFigures, ...] = ()
    multiply_adds: Optional[int] = 0
    products: tuple[Product, ...] = ()
    calls: int = 1

    @property
    def dimensions(self) -> Optional[tuple[int, int, int]]:
        """(m, n, k) of the product with most multiply-adds: what decides Tensor Core use; None where there is none."""
        if not self.products:
            return None
        largest = max(self.products, key=lambda product: product.multiply_adds)
        return largest.m, largest.n, largest.k

    @property
    def parameters(self) -> int:
        """Elements of its weights, trainable or not, as ``model.count_params()`` counts them."""
        return sum(weight.count for weight in self.weights)

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights as stored."""
        return sum(weight.size for weight in self.weights)
