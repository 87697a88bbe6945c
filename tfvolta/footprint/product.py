"""Matrix products and convolutions as one shape of work: independent products of an (m, k) with a (k, n) matrix."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Product:
    """One operation that multiplies and adds.

    A convolution is the product that it amounts to: m output positions, n output channels and k weights of each.

    Attributes:
        operation: TensorFlow's name, such as ``MatMul``, ``Conv2D`` or ``DepthwiseConv2dNative``.
        dtype: The type that is multiplied.
        m: Rows: examples, tokens or output positions.
        n: Columns: units or output channels, of one group.
        k: What is summed over: inputs, or window times input channels of one group.
        count: Independent products of this shape: heads times batch, groups, steps of a sequence.
        channels: Input and output channels of one group of a convolution; None for a matrix product.
        groups: Groups of channels of a convolution.
    """

    operation: str
    dtype: str
    m: int
    n: int
    k: int
    count: int = 1
    channels: Optional[tuple[int, int]] = None
    groups: int = 1

    @property
    def multiply_adds(self) -> int:
        """Multiplications, each with its addition."""
        return self.m * self.n * self.k * self.count

    @property
    def depthwise(self) -> bool:
        """Whether each input channel is convolved by itself."""
        return self.channels is not None and self.channels[0] == 1 and self.groups > 1

    def repeated(self, times: int) -> Product:
        """The same product computed ``times`` as often, as in the steps of a sequence."""
        return dataclasses.replace(self, count=self.count * times)
