"""One training step as operations and tensors, without TensorFlow: what memory it takes follows from the order."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class StepOperation:
    """One operation of a traced training step.

    Attributes:
        kind: TensorFlow's name, such as ``Conv2D``.
        inputs: Numbers of the tensors that it reads.
        outputs: Numbers of the tensors that it makes.
        waits_for: Numbers of operations that have to be done before it.
        layer: Number of the layer that made it; None for the loss, the backward pass and the optimiser.
        scratch: Bytes that it holds only while it runs.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    waits_for: tuple[int, ...] = ()
    layer: Optional[int] = None
    scratch: int = 0


@dataclasses.dataclass(frozen=True)
class Convolution:
    """One convolution of the forward pass.

    Attributes:
        filter_shape: Height, width, channels and filters.
        strides: Of height and width.
        dtype: The type that it computes in.
    """

    filter_shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        operations: In the order of the trace; functions that are called stand in the place of the call.
        sizes: Bytes of each tensor on the device; 0 for what lies in the memory of the host.
        layers: Paths of the layers that the operations name by number.
        unknown: Tensors whose size is not known before training.
        compiled: Numbers of the operations that XLA compiles.
        convolutions: Its two-dimensional convolutions whose filters have known sizes.
        constants: Bytes of tensors of one value and known shape: grappler makes constants of them, which stay on the
            device from the first step on, so that their sizes are 0 here.
    """

    operations: tuple[StepOperation, ...]
    sizes: tuple[int, ...]
    layers: tuple[str, ...]
    unknown: int = 0
    compiled: frozenset[int] = frozenset()
    convolutions: tuple[Convolution, ...] = ()
    constants: int = 0
