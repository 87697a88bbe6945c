"""The weights that both sides begin with: the published initial values of each model, drawn by numpy from a seed.

Layouts and names are those of the Keras models; ``torch_models.place`` transposes them.

Sources:
    ResNet-50: He et al. 2015 for convolutions (normal, fan out), Goyal et al. 2017 for the last layer (normal, 0.01);
        no gamma is zero. BERT: Devlin et al. 2018, a normal of 0.02 that is cut at two deviations, for all kernels and
        the embedding. LSTM: Keras's defaults (Glorot, orthogonal, forget gate 1).
"""

from __future__ import annotations

import math
from typing import Any, Iterator

import numpy as np

from benchmarks.peers.workloads import Workload

Named = tuple[str, list[Any]]  # a layer's name and its arrays, as Keras's set_weights takes them


def initial_values(workload: Workload, seed: int = 0) -> Iterator[Named]:
    """Each layer with weights, one after the other, so that a large model never lies in memory twice.

    Args:
        workload: Sizes.
        seed: Of numpy's generator.

    Yields:
        A layer's name and its float32 arrays.
    """
    generator = np.random.default_rng(seed)
    if workload.model == "resnet50":
        return _resnet(workload, generator)
    return _encoder(workload, generator) if workload.model == "bert_large" else _sequences(workload, generator)


def bottlenecks(workload: Workload) -> Iterator[tuple[str, int, int, int]]:
    """Name, incoming channels, width and stride of each block of a ResNet."""
    channels = workload.width
    for stage, number in enumerate(workload.depth):
        width = workload.width * 2**stage
        for block in range(number):
            yield f"stage{stage}_block{block}", channels, width, 2 if block == 0 and stage else 1
            channels = 4 * width


def _resnet(workload: Workload, generator: Any) -> Iterator[Named]:
    yield from _convolution(generator, "stem", 7, 3, workload.width)
    for name, channels, width, stride in bottlenecks(workload):
        if stride > 1 or channels != 4 * width:
            yield from _convolution(generator, f"{name}_shortcut", 1, channels, 4 * width)
        yield from _convolution(generator, f"{name}_first", 1, channels, width)
        yield from _convolution(generator, f"{name}_second", 3, width, width)
        yield from _convolution(generator, f"{name}_third", 1, width, 4 * width)
        last = 4 * width
    yield "head", [_normal(generator, (last, workload.classes), 0.01), _zeros(workload.classes)]


def _convolution(generator: Any, name: str, size: int, channels_in: int, channels_out: int) -> Iterator[Named]:
    """A kernel ``(size, size, in, out)``, and gamma, beta, mean and variance of the normalisation behind it."""
    deviation = math.sqrt(2 / (size * size * channels_out))
    yield f"{name}_conv", [_normal(generator, (size, size, channels_in, channels_out), deviation)]
    yield f"{name}_norm", [_ones(channels_out), _zeros(channels_out), _zeros(channels_out), _ones(channels_out)]


def _encoder(workload: Workload, generator: Any) -> Iterator[Named]:
    width, heads = workload.width, workload.heads
    each = width // heads

    def kernel(*shape: int) -> Any:
        return _cut_normal(generator, shape, 0.02)

    yield "words", [kernel(workload.words, width)]
    yield "words_norm", [_ones(width), _zeros(width)]
    for layer in range(workload.depth[0]):
        projections = [part for _ in range(3) for part in (kernel(width, heads, each), _zeros(heads, each))]
        yield f"layer{layer}_attention", [*projections, kernel(heads, each, width), _zeros(width)]
        yield f"layer{layer}_first_norm", [_ones(width), _zeros(width)]
        yield f"layer{layer}_inner", [kernel(width, 4 * width), _zeros(4 * width)]
        yield f"layer{layer}_outer", [kernel(4 * width, width), _zeros(width)]
        yield f"layer{layer}_second_norm", [_ones(width), _zeros(width)]
    yield "head", [kernel(width, workload.classes), _zeros(workload.classes)]


def _sequences(workload: Workload, generator: Any) -> Iterator[Named]:
    width = workload.width
    yield "words", [_uniform(generator, (workload.words, width), 0.05)]
    for layer in range(workload.depth[0]):
        bias = _zeros(4 * width)
        bias[width : 2 * width] = 1  # gates in Keras's order, which is PyTorch's: input, forget, cell, output
        kernels = [_glorot(generator, width, 4 * width), _orthogonal(generator, width, 4 * width)]
        yield f"lstm{layer}", [*kernels, bias]
    yield "head", [_glorot(generator, width, workload.classes), _zeros(workload.classes)]


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def _ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _normal(generator: Any, shape: tuple[int, ...], deviation: float) -> Any:
    return generator.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def _cut_normal(generator: Any, shape: tuple[int, ...], deviation: float) -> Any:
    """Values beyond two deviations are drawn again."""
    found = generator.standard_normal(shape, dtype=np.float32).reshape(-1)
    beyond = np.flatnonzero(np.abs(found) > 2)
    while beyond.size:
        found[beyond] = generator.standard_normal(beyond.size, dtype=np.float32)
        beyond = beyond[np.abs(found[beyond]) > 2]
    return found.reshape(shape) * np.float32(deviation)


def _uniform(generator: Any, shape: tuple[int, ...], limit: float) -> Any:
    return (generator.random(shape, dtype=np.float32) * 2 - 1) * np.float32(limit)


def _glorot(generator: Any, fan_in: int, fan_out: int) -> Any:
    return _uniform(generator, (fan_in, fan_out), math.sqrt(6 / (fan_in + fan_out)))


def _orthogonal(generator: Any, rows: int, columns: int) -> Any:
    """``rows`` of ones' length that are at right angles to each other; ``rows`` is the smaller number."""
    made, triangle = np.linalg.qr(generator.standard_normal((columns, rows)))
    return (made * np.sign(np.diag(triangle))).T.astype(np.float32)
