"""Building blocks of convolutional models: convolutions, normalisation and dense layers as layers with work."""

from __future__ import annotations

from tfvolta.cost.gradients import Layer


class Convolutions:
    """Collects the layers of a convolutional model and follows the size of its feature maps.

    Attributes:
        layers: In the order of the forward pass.
        size: Width and height of the current feature map.
        channels: Its channels.
    """

    def __init__(self, size: int, channels: int = 3):
        self.layers: list[Layer] = []
        self.size = size
        self.channels = channels

    def convolution(
        self,
        filters: int,
        kernel: tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        norm: int = 2,
        same: bool = True,
    ) -> None:
        """Adds a convolution, and batch normalisation behind it.

        Args:
            filters: Output channels.
            kernel: Height and width.
            stride: In both directions.
            groups: Groups of channels; as many as channels for a depthwise convolution.
            norm: Trainable vectors of the normalisation: scale and offset, offset alone, or 0 for a bias instead.
            same: Whether the feature map is padded.
        """
        height, width = kernel
        trimmed = self.size if same else self.size - max(height, width) + 1
        self.size = -(-trimmed // stride)
        weights = height * width * self.channels // groups * filters
        name = f"convolution {len(self.layers)}: {height}x{width}, {self.channels} to {filters}"
        bias = filters if norm == 0 else 0
        self.layers.append(Layer(name, weights + bias, float(weights) * self.size * self.size))
        self.channels = filters
        if norm:
            self.layers.append(Layer(f"normalisation {len(self.layers)}", norm * filters, 0.0))

    def pool(self, kernel: int, stride: int, same: bool = True) -> None:
        """Makes the feature map smaller."""
        trimmed = self.size if same else self.size - kernel + 1
        self.size = -(-trimmed // stride)

    def squeeze(self, hidden: int) -> None:
        """Adds squeeze-and-excitation: two small dense layers that weigh the channels."""
        channels = self.channels
        for number, (inputs, outputs) in enumerate(((channels, hidden), (hidden, channels))):
            work = float(inputs * outputs)
            self.layers.append(Layer(f"squeeze {len(self.layers)}.{number}", inputs * outputs + outputs, work))

    def dense(self, inputs: int, outputs: int) -> None:
        """Adds a dense layer with a bias."""
        work = float(inputs * outputs)
        self.layers.append(Layer(f"dense {len(self.layers)}: {inputs} to {outputs}", inputs * outputs + outputs, work))
