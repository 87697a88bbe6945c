"""ResNet-50, the encoder of BERT-large and LSTM layers in Keras's own layers, as a script would write them."""

from __future__ import annotations

from typing import Any, Optional


def resnet(
    keras: Any, size: int, classes: int, width: int = 64, depth: Any = (3, 4, 6, 3), stride_first: bool = False
) -> Any:
    """ResNet with bottlenecks for images ``(batch, size, size, 3)``; logits.

    Args:
        keras: The Keras to build with.
        size: Pixels of a side.
        classes: Number of classes.
        width: Channels of the first stage.
        depth: Blocks of each stage; (3, 4, 6, 3) is ResNet-50.
        stride_first: The stride lies in the first 1x1 of a block (v1) instead of in its 3x3 (v1.5).
    """
    layers = keras.layers
    inputs = keras.Input((size, size, 3))
    x = _convolution(layers, inputs, "stem", width, 7, 2)
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(layers.ReLU()(x)))
    for stage, number in enumerate(depth):
        for block in range(number):
            stride = 2 if block == 0 and stage else 1
            strides = (stride, 1) if stride_first else (1, stride)
            x = _bottleneck(layers, x, f"stage{stage}_block{block}", width * 2**stage, strides)
    return keras.Model(inputs, layers.Dense(classes, name="head")(layers.GlobalAveragePooling2D()(x)))


def _bottleneck(layers: Any, x: Any, name: str, width: int, strides: tuple[int, int]) -> Any:
    shortcut, stride = x, max(strides)
    if stride > 1 or x.shape[-1] != 4 * width:
        shortcut = _convolution(layers, x, f"{name}_shortcut", 4 * width, 1, stride)
    x = layers.ReLU()(_convolution(layers, x, f"{name}_first", width, 1, strides[0]))
    x = layers.ReLU()(_convolution(layers, x, f"{name}_second", width, 3, strides[1]))
    return layers.ReLU()(layers.Add()([_convolution(layers, x, f"{name}_third", 4 * width, 1), shortcut]))


def _convolution(layers: Any, x: Any, name: str, channels: int, size: int, stride: int = 1) -> Any:
    """A convolution, normalised; its padding is the same on all sides, which "same" with a stride is not."""
    padding = "same"
    if stride > 1 and size > 1:
        x, padding = layers.ZeroPadding2D(size // 2)(x), "valid"
    x = layers.Conv2D(channels, size, stride, padding=padding, use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(x)


def encoder(
    keras: Any, sizes: tuple[int, int, int, int], words: int = 30522, classes: int = 2, head: Optional[dict] = None
) -> Any:
    """The encoder of BERT with classes on the first token.

    Args:
        keras: The Keras to build with.
        sizes: Layers, width, heads and tokens; (24, 1024, 16, 128) is BERT-large.
        words: Rows of the embedding.
        classes: Number of classes.
        head: Arguments of the last layer, which gives logits without any.
    """
    depth, width, heads, tokens = sizes
    layers = keras.layers
    inputs = keras.Input((tokens,), dtype="int32")
    x = layers.Embedding(words, width, name="words")(inputs)
    x = layers.LayerNormalization(epsilon=1e-12, name="words_norm")(x)
    for layer in range(depth):
        attended = layers.MultiHeadAttention(heads, width // heads, name=f"layer{layer}_attention")(x, x)
        x = layers.LayerNormalization(epsilon=1e-12, name=f"layer{layer}_first_norm")(layers.Add()([x, attended]))
        inner = layers.Dense(4 * width, activation="gelu", name=f"layer{layer}_inner")(x)
        inner = layers.Dense(width, name=f"layer{layer}_outer")(inner)
        x = layers.LayerNormalization(epsilon=1e-12, name=f"layer{layer}_second_norm")(layers.Add()([x, inner]))
    first = layers.Reshape((width,))(layers.Cropping1D((0, tokens - 1))(x))
    return keras.Model(inputs, layers.Dense(classes, name="head", **(head or {}))(first))


def sequences(keras: Any, sizes: tuple[int, int, int], words: int, classes: int, floats: bool = False) -> Any:
    """LSTM layers behind an embedding, with logits on the last state.

    Args:
        keras: The Keras to build with.
        sizes: Layers, width and tokens.
        words: Rows of the embedding.
        classes: Number of classes.
        floats: Float16 vectors in place of embedded tokens.
    """
    depth, width, tokens = sizes
    layers = keras.layers
    if floats:
        inputs = x = keras.Input((tokens, width), dtype="float16")
    else:
        inputs = keras.Input((tokens,), dtype="int32")
        x = layers.Embedding(words, width, name="words")(inputs)
    for layer in range(depth):
        x = layers.LSTM(width, return_sequences=layer < depth - 1, name=f"lstm{layer}")(x)
    return keras.Model(inputs, layers.Dense(classes, dtype="float32", name="head")(x))
