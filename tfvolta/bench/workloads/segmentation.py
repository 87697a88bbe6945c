"""U-Net.

Source: Ronneberger, Fischer, Brox, U-Net (arXiv 1505.04597); padded, so that the mask is as large as the image.
"""

from __future__ import annotations

from typing import Any

from tfvolta.bench.workloads import synthetic
from tfvolta.bench.workloads.workload import Sizes, Workload


def _twice(keras: Any, x: Any, filters: int) -> Any:
    for _ in range(2):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return x


def build(keras: Any, sizes: Sizes) -> Any:
    """The model, from images (batch, size, size, 1) to a logit for each pixel (batch, size, size, 1).

    Args:
        keras: The Keras to build with.
        sizes: Image size, channels of the first stage, and how often the image is halved.
    """
    width, depth = int(sizes.width or 0), int(sizes.layers or 0)
    inputs = keras.Input((sizes.image_size, sizes.image_size, 1))
    x, kept = inputs, []
    for level in range(depth):
        kept.append(_twice(keras, x, width * 2**level))
        x = keras.layers.MaxPooling2D(2)(kept[-1])
    x = _twice(keras, x, width * 2**depth)
    for level in reversed(range(depth)):
        x = keras.layers.Conv2DTranspose(width * 2**level, 2, strides=2, padding="same")(x)
        x = _twice(keras, keras.layers.Concatenate()([kept[level], x]), width * 2**level)
    return keras.Model(inputs, keras.layers.Conv2D(1, 1)(x), name="unet")


WORKLOADS = (
    Workload(
        name="unet",
        description="U-Net (arXiv 1505.04597), 31 M parameters, one class of pixels",
        sizes=Sizes(16, image_size=256, layers=4, width=64),
        tiny=Sizes(4, image_size=32, layers=2, width=4),
        build=build,
        data=synthetic.masks,
        optimizer="adam",
        learning_rate=1e-4,
        loss="binary",
        unit="images",
    ),
)
