"""VGG. Source: Simonyan and Zisserman, Very Deep Convolutional Networks (arXiv 1409.1556), configurations D and E."""

from __future__ import annotations

from typing import Sequence

from tfvolta.cost.gradients import Layer
from tfvolta.cost.models.convolution import Convolutions


def vgg(convolutions: Sequence[int]) -> list[Layer]:
    """The layers at 224 pixels and 1000 classes.

    Args:
        convolutions: 3x3 convolutions of each stage.
    """
    network = Convolutions(224)
    for stage, count in enumerate(convolutions):
        for _ in range(count):
            network.convolution(min(64 * 2**stage, 512), (3, 3), norm=0)
        network.pool(2, 2)
    network.dense(network.channels * network.size**2, 4096)
    network.dense(4096, 4096)
    network.dense(4096, 1000)
    return network.layers
