"""Operations of a TensorFlow graph as plain data, and the matrix products in them.

The counts follow from the shapes of each operation and not from the class of the layer, so that they hold for layers
that nobody foresaw.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Optional

from tfvolta.footprint.layer import Shape
from tfvolta.footprint.product import Product

# A shape of which something is not known is None.
KnownShape = Optional[Shape]

# Code that TensorFlow's graph does not show: what it multiplies cannot be counted.
OPAQUE = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaCustomCall", "XlaCustomCallV2", "TPUReplicate"})


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        kind: TensorFlow's name of it.
        dtype: Type of what it computes with; empty where it has none.
        inputs: Shapes of its inputs.
        outputs: Shapes of its outputs.
        attributes: Those that the rules below need.
    """

    kind: str
    dtype: str
    inputs: tuple[KnownShape, ...]
    outputs: tuple[KnownShape, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def products_of(operation: Operation) -> tuple[Product, ...]:
    """The matrix products or convolutions that an operation is; empty for one that is neither.

    Raises:
        ValueError: It is one, and a shape that counts is not known.
    """
    if operation.kind.startswith("CudnnRNN"):
        return _recurrent(operation)
    rule = _RULES.get(operation.kind)
    if rule is None:
        return ()
    if any(shape is None for shape in (*operation.inputs[:2], *operation.outputs[:1])):
        raise _unknown(operation)
    product = rule(operation)
    return () if product is None else (product,)


def _unknown(operation: Operation) -> ValueError:
    return ValueError(f"{operation.kind} has a shape that is not known")


def _matrix(operation: Operation) -> Product:
    """Source: shapes of tf.raw_ops.MatMul and BatchMatMulV2."""
    left, out = operation.inputs[0], operation.outputs[0]
    assert left is not None and out is not None
    transposed = operation.attributes.get("transpose_a") or operation.attributes.get("adj_x")
    k = left[-2] if transposed else left[-1]
    return Product(operation.kind, operation.dtype, m=out[-2], n=out[-1], k=k, count=math.prod(out[:-2]))


def _convolution(operation: Operation) -> Product:
    """A convolution of any rank: its filter is (window, input channels of one group, output channels)."""
    kernel, out = operation.inputs[1], operation.outputs[0]
    assert kernel is not None and out is not None
    return _convolved(operation, operation.inputs[0], kernel, out)


def _transposed(operation: Operation) -> Product:
    """A transposed convolution is the gradient of one: each value of its input is spread over a window."""
    kernel, spread = operation.inputs[1], operation.inputs[2]
    if kernel is None or spread is None:
        raise _unknown(operation)
    product = _convolved(operation, operation.outputs[0], kernel, spread)
    window = math.prod(kernel[:-2])
    inputs, outputs = product.channels or (1, 1)
    return dataclasses.replace(product, n=inputs, k=window * outputs, channels=(outputs, inputs))


def _convolved(operation: Operation, image: KnownShape, kernel: Shape, out: Shape) -> Product:
    """The product from a convolution's image, filter and result."""
    if image is None:
        raise _unknown(operation)
    channels_first = str(operation.attributes.get("data_format", "")).startswith("NC")
    groups = max(1, image[1 if channels_first else -1] // kernel[-2])
    positions = math.prod(out) // kernel[-1]
    return Product(
        operation.kind,
        operation.dtype,
        m=positions,
        n=kernel[-1] // groups,
        k=math.prod(kernel[:-1]),
        count=groups,
        channels=(kernel[-2], kernel[-1] // groups),
        groups=groups,
    )


def _depthwise(operation: Operation) -> Product:
    """Its filter is (height, width, channels, multiplier)."""
    kernel, out = operation.inputs[1], operation.outputs[0]
    assert kernel is not None and out is not None
    channels, multiplier = kernel[-2], kernel[-1]
    return Product(
        operation.kind,
        operation.dtype,
        m=math.prod(out) // (channels * multiplier),
        n=multiplier,
        k=math.prod(kernel[:-2]),
        count=channels,
        channels=(1, multiplier),
        groups=max(2, channels),
    )


def _einsum(operation: Operation) -> Optional[Product]:
    """Labels that both sides have are a batch where the result has them, and summed over where it has not."""
    if len(operation.inputs) != 2:
        return None  # one input: a transposition or a sum
    sizes, sides, result = _labels(operation)
    left, right = sides
    shared = set(left) & set(right)
    summed = {label for label in shared if label not in result}
    if not summed:
        return None  # element-wise or outer product: nothing is added up
    batch = shared - summed
    # A label of one side that is summed over is summed before the product.
    free = [[label for label in side if label not in shared and label in result] for side in sides]
    m, n = (math.prod(sizes[label] for label in labels) for labels in free)
    k = math.prod(sizes[label] for label in summed)
    return Product("Einsum", operation.dtype, m, n, k, count=math.prod(sizes[label] for label in batch))


def _labels(operation: Operation) -> tuple[dict[str, int], list[list[str]], set[str]]:
    """Sizes by label, the labels of both sides and those of the result; dimensions of an ellipsis count from behind."""
    equation = str(operation.attributes["equation"]).replace(" ", "")
    inputs, result = equation.split("->")
    sizes: dict[str, int] = {}
    sides: list[list[str]] = []
    for labels, shape in zip(inputs.split(","), operation.inputs):
        assert shape is not None
        hidden = len(shape) - len(labels.replace("...", ""))
        before, _, after = labels.partition("...")
        names = [*before, *(f"ellipsis {number}" for number in range(hidden, 0, -1)), *after]
        for name, size in zip(names, shape):
            sizes[name] = max(size, sizes.get(name, 1))
        sides.append(names)
    kept = set(result.replace("...", ""))
    if "..." in result:
        kept |= {name for name in sizes if name.startswith("ellipsis")}
    return sizes, sides, kept


_GATES = {"lstm": 4, "gru": 3}  # of plain recurrent networks, one


def _recurrent(operation: Operation) -> tuple[Product, ...]:
    """A layer of cuDNN's recurrent networks: the inputs of all steps at once, and the state step by step.

    Source: tf.raw_ops.CudnnRNNV3, whose inputs are (steps, batch, features) unless it is not time-major.
    """
    sequence, state = operation.inputs[:2]
    if sequence is None or state is None:
        raise _unknown(operation)
    steps, batch = sequence[:2] if operation.attributes.get("time_major", True) else (sequence[1], sequence[0])
    units = state[-1]
    columns = units * _GATES.get(str(operation.attributes.get("rnn_mode", "lstm")), 1)
    return (
        Product(operation.kind, operation.dtype, m=steps * batch, n=columns, k=sequence[-1]),
        Product(operation.kind, operation.dtype, m=batch, n=columns, k=units, count=steps),
    )


_RULES: Mapping[str, Callable[[Operation], Optional[Product]]] = {
    "MatMul": _matrix,
    "BatchMatMul": _matrix,
    "BatchMatMulV2": _matrix,
    "BatchMatMulV3": _matrix,
    "_FusedMatMul": _matrix,
    "Conv": _convolution,
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "Conv2DBackpropInput": _transposed,
    "Conv3DBackpropInputV2": _transposed,
    "DepthwiseConv2dNative": _depthwise,
    "Einsum": _einsum,
}
