"""Scratch memory for a convolution, as a start for a card of some size."""

from __future__ import annotations

from typing import Mapping, Optional, Union

VARIABLE = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB"
DEFAULT_MB = 8192  # TensorFlow's, since 2.10, whatever the card
_LARGE_CARD_MB = 24 * 1024
_SHARES = (16, 8)  # of a smaller and of a large card
_LEAST_MB = 128


def start_mb(memory_mb: int) -> int:
    """A power of two: 1024 MiB of 16 GiB, 4096 of 32, TensorFlow's own 8192 from 64 on.

    A convolution wants its scratch memory at the moment when activations are at their peak. A small card gives it a
    sixteenth, so that the model has room; a large one an eighth, for the algorithms that trade memory for speed. No
    speed is claimed: ``benchmarks/workspace/measure.py`` measures it for a model and a card.
    """
    share = _SHARES[memory_mb >= _LARGE_CARD_MB]
    size = _LEAST_MB
    while size * 2 <= min(memory_mb / share * 1.1, DEFAULT_MB):  # cards of 16 GB have a little less than 16 GiB
        size *= 2
    return size


def reason(memory_mb: int) -> str:
    """Why that much, in a sentence."""
    share = 100 * DEFAULT_MB // memory_mb
    start = start_mb(memory_mb)
    if start >= DEFAULT_MB:
        return f"TensorFlow's default of {DEFAULT_MB} MiB is {share} % of {memory_mb} MiB: nothing to gain by a limit."
    return (
        f"Start with {start} MiB on {memory_mb} MiB: the default is {share} % of the card, wanted when activations are "
        "at their peak."
    )


def limit_mb(setting: Union[int, str, None], environment: Mapping[str, str], memory_mb: Optional[int] = None) -> int:
    """What a convolution may take: by the environment, which wins, by the config, or TensorFlow's default.

    Args:
        setting: Value of ``cudnn.workspace_limit_mb``, such as 1024 or ``auto``.
        environment: Of the process.
        memory_mb: Of the GPU, by which ``auto`` is decided; TensorFlow's default counts for it where None.

    Source: ``GetDnnWorkspaceLimit`` in tensorflow/core/kernels/gpu_utils.h, which ignores what is no whole number.
    """
    try:
        return max(int(environment[VARIABLE]), 0)
    except (KeyError, ValueError):
        if isinstance(setting, int):
            return setting
        return DEFAULT_MB if setting is None or memory_mb is None else start_mb(memory_mb)
