"""ResNet v1.5, ResNeXt and SE-ResNeXt.

Sources: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition (arXiv 1512.03385); Xie, Girshick, Dollar,
Tu, He, Aggregated Residual Transformations (arXiv 1611.05431); Hu, Shen, Albanie, Sun, Wu, Squeeze-and-Excitation
Networks (arXiv 1709.01507). v1.5 has its stride in the 3x3 convolution; convolutions have no bias (those of
``keras.applications`` have one, 0.1 % more parameters).
"""

from __future__ import annotations

from typing import Sequence

from tfvolta.cost.gradients import Layer
from tfvolta.cost.models.convolution import Convolutions

_REDUCTION = 16


def resnet(blocks: Sequence[int], groups: int = 1, squeeze: bool = False) -> list[Layer]:
    """The layers at 224 pixels and 1000 classes.

    Args:
        blocks: Bottleneck blocks of each stage.
        groups: Groups of the 3x3 convolution; 32 is ResNeXt 32x4d, whose 3x3 convolutions are twice as wide.
        squeeze: Whether each block ends with squeeze-and-excitation.
    """
    network = Convolutions(224)
    network.convolution(64, (7, 7), stride=2)
    network.pool(3, 2)
    for stage, count in enumerate(blocks):
        for block in range(count):
            _bottleneck(network, stage, block, groups, squeeze)
    network.dense(network.channels, 1000)
    return network.layers


def _bottleneck(network: Convolutions, stage: int, block: int, groups: int, squeeze: bool) -> None:
    narrow, wide = 64 * 2**stage, 256 * 2**stage
    inner = narrow if groups == 1 else 2 * narrow
    stride = 2 if block == 0 and stage else 1
    size, channels = network.size, network.channels
    network.convolution(inner, (1, 1))
    network.convolution(inner, (3, 3), stride=stride, groups=groups)
    network.convolution(wide, (1, 1))
    if squeeze:
        network.squeeze(wide // _REDUCTION)
    if block == 0:
        after = network.size
        network.size, network.channels = size, channels
        network.convolution(wide, (1, 1), stride=stride)
        network.size = after
