"""ResNet-50, the encoder of BERT-large and two LSTM layers in PyTorch, with Keras's initial values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.workloads import Workload


def make_model(workload: Workload, stride_first: bool = False, half_residual: bool = True) -> nn.Module:
    """A model that gives logits.

    Args:
        workload: Sizes.
        stride_first: ResNet's stride lies in the first 1x1 of a block (v1) instead of in its 3x3 (v1.5).
        half_residual: What layer normalisation gives goes on in float16, as under Keras's mixed_float16; else in
            float32, as autocast leaves it.
    """
    torch.manual_seed(0)
    if workload.model == "resnet50":
        return ResNet(workload, stride_first)
    return Encoder(workload, half_residual) if workload.model == "bert_large" else Sequences(workload)


def glorot(weight: Any, fan_in: int, fan_out: int) -> None:
    """Keras's default for kernels."""
    limit = math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -limit, limit)


def dense(width_in: int, width_out: int) -> nn.Linear:
    """A dense layer with Keras's initial values."""
    layer = nn.Linear(width_in, width_out)
    glorot(layer.weight, width_in, width_out)
    nn.init.zeros_(layer.bias)
    return layer


def embedding(words: int, width: int) -> nn.Embedding:
    """An embedding with Keras's initial values."""
    layer = nn.Embedding(words, width)
    nn.init.uniform_(layer.weight, -0.05, 0.05)
    return layer


# ------------------------------------------------------------------------------------------------------------ ResNet


def convolution(channels_in: int, channels_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, bias=False)
    glorot(layer.weight, channels_in * size * size, channels_out * size * size)
    return layer


def normalisation(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut."""

    def __init__(self, channels_in: int, width: int, stride: int, stride_first: bool):
        super().__init__()
        first, second = (stride, 1) if stride_first else (1, stride)
        self.body = nn.Sequential(
            convolution(channels_in, width, 1, first),
            normalisation(width),
            nn.ReLU(inplace=True),
            convolution(width, width, 3, second),
            normalisation(width),
            nn.ReLU(inplace=True),
            convolution(width, 4 * width, 1),
            normalisation(4 * width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels_in != 4 * width:
            self.shortcut = nn.Sequential(convolution(channels_in, 4 * width, 1, stride), normalisation(4 * width))

    def forward(self, x: Any) -> Any:
        return functional.relu(self.body(x) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """ResNet-50 for images ``(batch, 3, height, width)``."""

    def __init__(self, workload: Workload, stride_first: bool):
        super().__init__()
        channels = workload.width
        self.stem = nn.Sequential(
            convolution(3, channels, 7, 2), normalisation(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        for stage, number in enumerate(workload.depth):
            width = workload.width * 2**stage
            for block in range(number):
                blocks.append(Bottleneck(channels, width, 2 if block == 0 and stage else 1, stride_first))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = dense(channels, workload.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


# -------------------------------------------------------------------------------------------------------------- BERT


class Normalisation(nn.LayerNorm):
    """Layer normalisation in float32 whose result may go on in autocast's type."""

    def __init__(self, width: int, half: bool):
        super().__init__(width, eps=1e-12)
        self.half_result = half

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        if self.half_result and torch.is_autocast_enabled(x.device.type):
            return y.to(torch.get_autocast_dtype(x.device.type))
        return y


class Block(nn.Module):
    """Attention and two dense layers, each with a residual that is normalised after the sum."""

    def __init__(self, width: int, heads: int, half: bool):
        super().__init__()
        self.heads = heads
        self.projection = nn.Linear(width, 3 * width)  # queries, keys and values in one product
        self.output = nn.Linear(width, width)
        self.inner, self.outer = dense(width, 4 * width), dense(4 * width, width)
        self.first, self.second = Normalisation(width, half), Normalisation(width, half)
        each = width // heads  # Keras counts the fans of kernels (width, heads, each) and (heads, each, width) so:
        glorot(self.projection.weight, heads * width, each * width)
        glorot(self.output.weight, each * heads, width * heads)
        nn.init.zeros_(self.projection.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.projection(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = self.first(x + self.output(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        return self.second(x + self.outer(functional.gelu(self.inner(x))))


class Encoder(nn.Module):
    """BERT's encoder for tokens ``(batch, tokens)``, with classes on the first token."""

    def __init__(self, workload: Workload, half: bool):
        super().__init__()
        self.words = embedding(workload.words, workload.width)
        self.norm = Normalisation(workload.width, half)
        self.blocks = nn.Sequential(*(Block(workload.width, workload.heads, half) for _ in range(workload.depth[0])))
        self.head = dense(workload.width, workload.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.norm(self.words(x)))[:, 0])


# -------------------------------------------------------------------------------------------------------------- LSTM


class Sequences(nn.Module):
    """LSTM layers in one cuDNN call behind an embedding, with classes on the last state."""

    def __init__(self, workload: Workload):
        super().__init__()
        width = workload.width
        self.words = embedding(workload.words, width)
        self.layers = nn.LSTM(width, width, workload.depth[0], batch_first=True)
        for name, weight in self.layers.named_parameters():
            if name.startswith("weight_ih"):
                glorot(weight, width, 4 * width)
            elif name.startswith("weight_hh"):
                nn.init.orthogonal_(weight)
            else:
                nn.init.zeros_(weight)
                if name.startswith("bias_ih"):
                    nn.init.ones_(weight[width : 2 * width])  # the forget gate
        self.head = dense(width, workload.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.words(x))[0][:, -1])
