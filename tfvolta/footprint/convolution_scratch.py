"""Scratch memory of a convolution that TensorFlow's own kernels run: what is a bound, and what is a guess.

cuDNN has algorithms that trade memory for time, and TensorFlow takes each that stays under a limit: the limit is the
bound. Which of them is tried or taken is known in training only. In float32 the ones by Fourier transforms want most:
they hold the filters as spectra of tiles of 32 x 32, half of which is stored. Twice that of the largest filter is the
guess; it lies within 6 % of three peaks of ResNet-50 in float32 on an H200, see docs/estimate_memory.md. What is tried
counts as what is taken: the peak of a training is often that of the first step.

Source: ``GetDnnWorkspaceLimit`` in tensorflow/core/kernels/gpu_utils.h; CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING and
its backward forms in https://docs.nvidia.com/deeplearning/cudnn (tiles of 32 x 32, stride 1, filters up to 32 x 32).
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from tfvolta.footprint.step import Convolution, Step

_TILE = 32
_SPECTRUM_VALUES = _TILE * (_TILE // 2 + 1)
_BYTES_OF_COMPLEX = 8
_SPECTRA = 2
# Of the tensors of a step whose convolutions are computed in float16: Tensor Core kernels want little.
_SHARE = 0.10
_CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3DBackpropInputV2")


@dataclasses.dataclass(frozen=True)
class ConvolutionScratch:
    """Scratch memory at the worst moment, in bytes.

    Attributes:
        guess: What is expected.
        bound: What it cannot be more than: the limit of a convolution; 0 without convolutions.
    """

    guess: int = 0
    bound: int = 0


def scratch_of(step: Step, held: int, limit: Optional[int]) -> ConvolutionScratch:
    """The scratch memory of a step that is not compiled.

    Args:
        step: With its convolutions.
        held: Bytes of the tensors at the worst moment.
        limit: Of a convolution's scratch memory, in bytes; None where nothing limits it.
    """
    if not any(operation.kind in _CONVOLUTIONS for operation in step.operations):
        return ConvolutionScratch()
    wanted = max([int(held * _SHARE), *(_spectra(each) for each in step.convolutions)])
    if limit is None:
        return ConvolutionScratch(wanted, wanted)
    return ConvolutionScratch(min(wanted, limit), limit)


def _spectra(convolution: Convolution) -> int:
    """Bytes of the spectra of filters; 0 where no such algorithm exists or none is likely."""
    height, width, channels, made = convolution.filter_shape
    fits = height * width > 1 and max(height, width) <= _TILE and max(convolution.strides) == 1
    if not fits or convolution.dtype != "float32":
        return 0
    return _SPECTRA * channels * made * _SPECTRUM_VALUES * _BYTES_OF_COMPLEX
