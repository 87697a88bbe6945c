"""ResNet v1.5.

Source: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition (arXiv 1512.03385); v1.5, as in MLPerf and in
NVIDIA's published figures, has its stride in the 3x3 convolution. Convolutions have no bias.
"""

from __future__ import annotations

import functools
from typing import Any, Sequence

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload


def _convolution(keras: Any, x: Any, filters: int, kernel: int, stride: int = 1, active: bool = True) -> Any:
    x = keras.layers.Conv2D(filters, kernel, strides=stride, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return keras.layers.ReLU()(x) if active else x


def _bottleneck(keras: Any, x: Any, narrow: int, stride: int, project: bool) -> Any:
    shortcut = _convolution(keras, x, 4 * narrow, 1, stride, active=False) if project else x
    x = _convolution(keras, x, narrow, 1)
    x = _convolution(keras, x, narrow, 3, stride)
    x = _convolution(keras, x, 4 * narrow, 1, active=False)
    return keras.layers.ReLU()(keras.layers.Add()([x, shortcut]))


def build(keras: Any, sizes: Sizes, blocks: Sequence[int]) -> Any:
    """The model, from images (batch, size, size, 3) to logits (batch, classes).

    Args:
        keras: The Keras to build with.
        sizes: Image size, width of the first stage and classes.
        blocks: Bottleneck blocks of each stage.
    """
    inputs = keras.Input((sizes.image_size, sizes.image_size, 3))
    width = int(sizes.width or 0)
    x = _convolution(keras, inputs, width, 7, stride=2)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, count in enumerate(blocks):
        for block in range(count):
            x = _bottleneck(keras, x, width * 2**stage, 2 if block == 0 and stage else 1, project=block == 0)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(sizes.classes)(x), name="resnet")


def _workload(number: int, blocks: Sequence[int], batch: int) -> Workload:
    return Workload(
        name=f"resnet{number}",
        description=f"ResNet-{number} v1.5 (arXiv 1512.03385), ImageNet's sizes",
        sizes=Sizes(batch, image_size=224, width=64, classes=1000),
        tiny=Sizes(8, image_size=32, width=4, classes=10),
        build=functools.partial(build, blocks=blocks),
        data=synthetic.images,
        learning_rate=0.05,
        unit="images",
    )


WORKLOADS = (
    _workload(50, (3, 4, 6, 3), 256),
    _workload(101, (3, 4, 23, 3), 128),
    _workload(152, (3, 8, 36, 3), 128),
)
