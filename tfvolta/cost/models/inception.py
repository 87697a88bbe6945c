"""Inception v3.

Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, Rethinking the Inception Architecture for Computer Vision (arXiv
1512.00567). Sizes of the branches are those of the reference implementation; batch normalisation has no scale.
"""

from __future__ import annotations

from typing import Sequence

from tfvolta.cost.gradients import Layer
from tfvolta.cost.models.convolution import Convolutions

# One branch: filters and kernel of each convolution.
_Branch = Sequence[tuple[int, tuple[int, int]]]


def inception_v3() -> list[Layer]:
    """The layers at 299 pixels and 1000 classes."""
    network = Convolutions(299)
    network.convolution(32, (3, 3), stride=2, norm=1, same=False)
    network.convolution(32, (3, 3), norm=1, same=False)
    network.convolution(64, (3, 3), norm=1)
    network.pool(3, 2, same=False)
    network.convolution(80, (1, 1), norm=1, same=False)
    network.convolution(192, (3, 3), norm=1, same=False)
    network.pool(3, 2, same=False)
    for pooled in (32, 64, 64):
        tower = [(64, (1, 1)), (96, (3, 3)), (96, (3, 3))]
        _block(network, [[(64, (1, 1))], [(48, (1, 1)), (64, (5, 5))], tower, [(pooled, (1, 1))]])
    _reduce(network, [[(384, (3, 3))], [(64, (1, 1)), (96, (3, 3)), (96, (3, 3))]])
    for inner in (128, 160, 160, 192):
        double = [(inner, (1, 1)), (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7))]
        single = [(inner, (1, 1)), (inner, (1, 7)), (192, (7, 1))]
        _block(network, [[(192, (1, 1))], single, double, [(192, (1, 1))]])
    long = [(192, (1, 1)), (192, (1, 7)), (192, (7, 1)), (192, (3, 3))]
    _reduce(network, [[(192, (1, 1)), (320, (3, 3))], long])
    for _ in range(2):
        _fan(network)
    network.dense(network.channels, 1000)
    return network.layers


def _branch(network: Convolutions, branch: _Branch, shrink: bool = False) -> None:
    for number, (filters, kernel) in enumerate(branch):
        last = shrink and number == len(branch) - 1
        network.convolution(filters, kernel, stride=2 if last else 1, norm=1, same=not last)


def _block(network: Convolutions, branches: Sequence[_Branch]) -> None:
    """Branches beside each other, their channels put together."""
    inputs, channels = network.channels, 0
    for branch in branches:
        network.channels = inputs
        _branch(network, branch)
        channels += network.channels
    network.channels = channels


def _reduce(network: Convolutions, branches: Sequence[_Branch]) -> None:
    """The same with half the size, and the pooled input beside them."""
    inputs, size, channels = network.channels, network.size, 0
    for branch in branches:
        network.channels, network.size = inputs, size
        _branch(network, branch, shrink=True)
        channels += network.channels
    network.channels = channels + inputs


def _fan(network: Convolutions) -> None:
    """The last blocks, in which two branches end in two convolutions beside each other."""
    inputs = network.channels
    for stem in ([(384, (1, 1))], [(448, (1, 1)), (384, (3, 3))]):
        network.channels = inputs
        _branch(network, stem)
        for kernel in ((1, 3), (3, 1)):
            network.channels = 384
            network.convolution(384, kernel, norm=1)
    for filters in (320, 192):
        network.channels = inputs
        network.convolution(filters, (1, 1), norm=1)
    network.channels = 2048
