"""EfficientNet B0 and B4.

Source: Tan and Le, EfficientNet (arXiv 1905.11946), table 1; coefficients of the reference implementation. Without its
drop of whole blocks, which differs between implementations.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload
from tfvolta.cost.models.efficientnet import STAGES

_STEM = 32
_HEAD = 1280


def _rounded(filters: float) -> int:
    """To a multiple of eight, and at least nine tenths of what was asked."""
    near = max(8, int(filters + 4) // 8 * 8)
    return near + 8 if near < 0.9 * filters else near


def _normed(keras: Any, x: Any, active: bool = True) -> Any:
    x = keras.layers.BatchNormalization(momentum=0.99, epsilon=1e-3)(x)
    return keras.layers.Activation("swish")(x) if active else x


def _squeezed(keras: Any, x: Any, hidden: int) -> Any:
    """Squeeze-and-excitation: channels weighed by two small dense layers."""
    channels = int(x.shape[-1])
    weights = keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
    weights = keras.layers.Conv2D(hidden, 1, activation="swish")(weights)
    return keras.layers.Multiply()([x, keras.layers.Conv2D(channels, 1, activation="sigmoid")(weights)])


def _block(keras: Any, x: Any, stage: tuple[int, int, int, int, int], filters: int) -> Any:
    """One inverted bottleneck: expansion, depthwise convolution, squeeze, projection."""
    kernel, _, _, expansion, stride = stage
    inputs, channels = x, int(x.shape[-1])
    if expansion != 1:
        x = _normed(keras, keras.layers.Conv2D(channels * expansion, 1, use_bias=False)(x))
    depthwise = keras.layers.DepthwiseConv2D(kernel, strides=stride, padding="same", use_bias=False)
    x = _squeezed(keras, _normed(keras, depthwise(x)), max(1, channels // 4))
    x = _normed(keras, keras.layers.Conv2D(filters, 1, use_bias=False)(x), active=False)
    return keras.layers.Add()([x, inputs]) if stride == 1 and channels == filters else x


def build(keras: Any, sizes: Sizes, depth: float) -> Any:
    """The model, from images (batch, size, size, 3) to logits (batch, classes).

    Args:
        keras: The Keras to build with.
        sizes: Image size, channels of the stem (32 in B0) and classes.
        depth: Coefficient of the repeats of each stage.
    """
    scale = int(sizes.width or 0) / _STEM
    inputs = keras.Input((sizes.image_size, sizes.image_size, 3))
    stem = keras.layers.Conv2D(_rounded(_STEM * scale), 3, strides=2, padding="same", use_bias=False)
    x = _normed(keras, stem(inputs))
    for stage in STAGES:
        for repeat in range(math.ceil(stage[1] * depth)):
            once = stage if repeat == 0 else (*stage[:4], 1)
            x = _block(keras, x, once, _rounded(stage[2] * scale))
    x = _normed(keras, keras.layers.Conv2D(_rounded(_HEAD * scale), 1, use_bias=False)(x))
    x = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, keras.layers.Dense(sizes.classes)(x), name="efficientnet")


def _workload(name: str, depth: float, sizes: Sizes) -> Workload:
    return Workload(
        name=name,
        description=f"{name.replace('efficientnet_b', 'EfficientNet-B')} (arXiv 1905.11946)",
        sizes=sizes,
        tiny=Sizes(8, image_size=32, width=8, classes=10),
        build=functools.partial(build, depth=depth),
        data=synthetic.images,
        learning_rate=0.02,
        unit="images",
    )


WORKLOADS = (
    _workload("efficientnet_b0", 1.0, Sizes(256, image_size=224, width=32, classes=1000)),
    _workload("efficientnet_b4", 1.8, Sizes(64, image_size=380, width=45, classes=1000)),
)
