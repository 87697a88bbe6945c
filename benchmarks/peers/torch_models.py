"""ResNet-50, the encoder of BERT-large and two LSTM layers in PyTorch, with the initial values of both sides."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.initial_values import bottlenecks, initial_values
from benchmarks.peers.workloads import Workload


def make_model(workload: Workload, stride_first: bool = False, half_residual: bool = True) -> nn.Module:
    """A model that gives logits.

    Args:
        workload: Sizes.
        stride_first: ResNet's stride lies in the first 1x1 of a block (v1) instead of in its 3x3 (v1.5).
        half_residual: What layer normalisation gives goes on in float16, as under Keras's mixed_float16; else in
            float32, as autocast leaves it.
    """
    if workload.model == "resnet50":
        model: Any = ResNet(workload, stride_first)
    else:
        model = Encoder(workload, half_residual) if workload.model == "bert_large" else Sequences(workload)
    place(model, workload)
    return model


def place(model: Any, workload: Workload) -> None:
    """Gives a model the values of ``initial_values``.

    Raises:
        ValueError: Keras and this model differ in their layers or shapes.
    """
    layers = dict(model.layers_by_name())
    for name, values in initial_values(workload):
        targets = layers.pop(name)
        if len(targets) != len(values):
            raise ValueError(f"{name}: {len(values)} arrays for {len(targets)} tensors")
        for target, value in zip(targets, values):
            with torch.no_grad():
                given = torch.from_numpy(value)
                if target.shape != given.shape:
                    raise ValueError(f"{name}: {tuple(given.shape)} for a tensor of {tuple(target.shape)}")
                target.copy_(given)
    if layers:
        raise ValueError(f"no values for {', '.join(layers)}")


Targets = Iterator[tuple[str, list[Any]]]  # a layer's name in Keras, and views of tensors in Keras's layout


def of_dense(layer: Any) -> list[Any]:
    """Kernel ``(in, out)`` and bias of a dense layer."""
    return [layer.weight.T, layer.bias]


# ------------------------------------------------------------------------------------------------------------ ResNet


def convolution(channels_in: int, channels_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, bias=False)


def of_pair(name: str, layer: Any, norm: Any) -> Targets:
    """A convolution's kernel ``(size, size, in, out)`` and the weights of its normalisation."""
    yield f"{name}_conv", [layer.weight.permute(2, 3, 1, 0)]
    yield f"{name}_norm", [norm.weight, norm.bias, norm.running_mean, norm.running_var]


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

    def layers_by_name(self, name: str) -> Targets:
        """Every layer with weights."""
        if isinstance(self.shortcut, nn.Sequential):
            yield from of_pair(f"{name}_shortcut", *self.shortcut)
        for place, number in (("first", 0), ("second", 3), ("third", 6)):
            yield from of_pair(f"{name}_{place}", self.body[number], self.body[number + 1])


class ResNet(nn.Module):
    """ResNet-50 for images ``(batch, 3, height, width)``."""

    def __init__(self, workload: Workload, stride_first: bool):
        super().__init__()
        channels = workload.width
        self.stem = nn.Sequential(
            convolution(3, channels, 7, 2), normalisation(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        for _, incoming, width, stride in bottlenecks(workload):
            blocks.append(Bottleneck(incoming, width, stride, stride_first))
            channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, workload.classes)
        self.names = [name for name, *_ in bottlenecks(workload)]

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))

    def layers_by_name(self) -> Targets:
        """Every layer with weights."""
        yield from of_pair("stem", self.stem[0], self.stem[1])
        for name, block in zip(self.names, self.blocks):
            yield from block.layers_by_name(name)
        yield "head", of_dense(self.head)


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
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = Normalisation(width, half), Normalisation(width, half)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.projection(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = self.first(x + self.output(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        return self.second(x + self.outer(functional.gelu(self.inner(x))))

    def layers_by_name(self, name: str) -> Targets:
        """Every layer with weights; Keras has queries, keys and values apart, and the heads in an axis of their own."""
        width = self.output.in_features
        attention: list[Any] = []
        for kernel, bias in zip(self.projection.weight.chunk(3), self.projection.bias.chunk(3)):
            attention += [kernel.T.view(width, self.heads, -1), bias.view(self.heads, -1)]
        mixed = self.output.weight.T.view(self.heads, -1, width)
        yield f"{name}_attention", [*attention, mixed, self.output.bias]
        yield f"{name}_first_norm", [self.first.weight, self.first.bias]
        yield f"{name}_inner", of_dense(self.inner)
        yield f"{name}_outer", of_dense(self.outer)
        yield f"{name}_second_norm", [self.second.weight, self.second.bias]


class Encoder(nn.Module):
    """BERT's encoder for tokens ``(batch, tokens)``, with classes on the first token."""

    def __init__(self, workload: Workload, half: bool):
        super().__init__()
        self.words = nn.Embedding(workload.words, workload.width)
        self.norm = Normalisation(workload.width, half)
        self.blocks = nn.Sequential(*(Block(workload.width, workload.heads, half) for _ in range(workload.depth[0])))
        self.head = nn.Linear(workload.width, workload.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.norm(self.words(x)))[:, 0])

    def layers_by_name(self) -> Targets:
        """Every layer with weights."""
        yield "words", [self.words.weight]
        yield "words_norm", [self.norm.weight, self.norm.bias]
        for number, block in enumerate(self.blocks):
            yield from block.layers_by_name(f"layer{number}")
        yield "head", of_dense(self.head)


# -------------------------------------------------------------------------------------------------------------- LSTM


class Sequences(nn.Module):
    """LSTM layers in one cuDNN call behind an embedding, with classes on the last state."""

    def __init__(self, workload: Workload):
        super().__init__()
        width = workload.width
        self.words = nn.Embedding(workload.words, width)
        self.layers = nn.LSTM(width, width, workload.depth[0], batch_first=True)
        for name, weight in self.layers.named_parameters():
            if name.startswith("bias_hh"):  # a second vector, which Keras does not have: it would learn twice as fast
                nn.init.zeros_(weight).requires_grad_(False)
        self.head = nn.Linear(width, workload.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.words(x))[0][:, -1])

    def layers_by_name(self) -> Targets:
        """Every layer with weights; the gates come in one order on both sides."""
        yield "words", [self.words.weight]
        for number in range(self.layers.num_layers):
            kernel, recurrent, bias, _ = self.layers.all_weights[number]
            yield f"lstm{number}", [kernel.T, recurrent.T, bias]
        yield "head", of_dense(self.head)
