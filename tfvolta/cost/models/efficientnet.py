"""EfficientNet B0 to B7 and V2-S.

Sources: Tan and Le, EfficientNet (arXiv 1905.11946), table 1 and the coefficients of the reference implementation;
Tan and Le, EfficientNetV2 (arXiv 2104.00298), table 4.
"""

from __future__ import annotations

import math

from tfvolta.cost.gradients import Layer
from tfvolta.cost.models.convolution import Convolutions

# Width, depth and resolution of B0 to B7.
_SCALES = (
    (1.0, 1.0, 224),
    (1.0, 1.1, 240),
    (1.1, 1.2, 260),
    (1.2, 1.4, 300),
    (1.4, 1.8, 380),
    (1.6, 2.2, 456),
    (1.8, 2.6, 528),
    (2.0, 3.1, 600),
)
# Kernel, repeats, filters, expansion and stride of each stage.
STAGES = (
    (3, 1, 16, 1, 1),
    (3, 2, 24, 6, 2),
    (5, 2, 40, 6, 2),
    (3, 3, 80, 6, 2),
    (5, 3, 112, 6, 1),
    (5, 4, 192, 6, 2),
    (3, 1, 320, 6, 1),
)
# Whether the convolution is fused, repeats, filters, expansion and stride.
_V2_S_STAGES = (
    (True, 2, 24, 1, 1),
    (True, 4, 48, 4, 2),
    (True, 4, 64, 4, 2),
    (False, 6, 128, 4, 2),
    (False, 9, 160, 6, 1),
    (False, 15, 256, 6, 2),
)


def efficientnet(number: int) -> list[Layer]:
    """The layers of EfficientNet B0 to B7 at the model's own resolution and 1000 classes.

    Args:
        number: 0 to 7.
    """
    width, depth, resolution = _SCALES[number]
    network = Convolutions(resolution)
    network.convolution(_rounded(32 * width), (3, 3), stride=2)
    for kernel, repeats, filters, expansion, stride in STAGES:
        for repeat in range(math.ceil(repeats * depth)):
            inputs = network.channels
            if expansion != 1:
                network.convolution(inputs * expansion, (1, 1))
            network.convolution(
                network.channels, (kernel, kernel), stride=1 if repeat else stride, groups=network.channels
            )
            network.squeeze(max(1, inputs // 4))
            network.convolution(_rounded(filters * width), (1, 1))
    network.convolution(_rounded(1280 * width), (1, 1))
    network.dense(network.channels, 1000)
    return network.layers


def _rounded(filters: float) -> int:
    """To a multiple of eight, and at least nine tenths of what was asked."""
    near = max(8, int(filters + 4) // 8 * 8)
    return near + 8 if near < 0.9 * filters else near


def efficientnet_v2_s() -> list[Layer]:
    """The layers of EfficientNetV2-S at 300 pixels and 1000 classes."""
    network = Convolutions(300)
    network.convolution(24, (3, 3), stride=2)
    for fused, repeats, filters, expansion, stride in _V2_S_STAGES:
        for repeat in range(repeats):
            _v2_block(network, fused, filters, expansion, 1 if repeat else stride)
    network.convolution(1280, (1, 1))
    network.dense(network.channels, 1000)
    return network.layers


def _v2_block(network: Convolutions, fused: bool, filters: int, expansion: int, stride: int) -> None:
    inputs = network.channels
    if fused:
        network.convolution(inputs * expansion if expansion != 1 else filters, (3, 3), stride=stride)
        if expansion != 1:
            network.convolution(filters, (1, 1))
        return
    network.convolution(inputs * expansion, (1, 1))
    network.convolution(network.channels, (3, 3), stride=stride, groups=network.channels)
    network.squeeze(max(1, inputs // 4))
    network.convolution(filters, (1, 1))
