"""What would make a step fit that ran out of memory: settings, the cheapest first, each with what it is known to save.

The figures come from facts that this project measured or from the documentation of the setting; whether a setting is
enough for this model is known only when it was tried (``tfvolta batch-size`` tries batch sizes).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from tfvolta.memory.workspace import start_mb

MULTIPLE = 8  # rows of a batch that keep float16 matrix products on Tensor Cores
_TENSOR_CORES = (7, 0)
_LEAST_KNOWN_MB = 512  # of scratch memory, for a card of unknown size


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """What decides which settings can help.

    Attributes:
        batch_size: Rows of the batch that failed, of one replica; None where not known.
        replicas: Devices that train in step.
        reduce_every: Batches that are added up for one update.
        stage: ``train`` or ``validation``.
        host: Whether the host's memory ran out.
        compute_capability: Of the GPU; None without one.
        memory_mb: Memory of the GPU, MiB; None likewise.
        half_precision: Whether layers compute in float16 or bfloat16 already.
        compiled: Whether XLA compiles the step.
        convolutions: Whether the step has convolutions that TensorFlow's own kernels run.
        workspace_limit_mb: What is set for them, MiB; None for TensorFlow's default.
        asked_bytes: Size of the allocation that failed; None where not known.
        free_bytes: What the allocator had left; None where not known.
        varies: Whether sizes other than the number of rows change from batch to batch.
        on_oom: What the config asks for.
        keys: Every key that a config may have.
    """

    batch_size: Optional[int] = None
    replicas: int = 1
    reduce_every: int = 1
    stage: str = "train"
    host: bool = False
    compute_capability: Optional[tuple[int, int]] = None
    memory_mb: Optional[int] = None
    half_precision: bool = False
    compiled: bool = False
    convolutions: bool = False
    workspace_limit_mb: Optional[int] = None
    asked_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    varies: bool = False
    on_oom: str = "report"
    keys: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Remedy:
    """One way out.

    Attributes:
        settings: Lines for a config or for ``--set``, or what to change in the script.
        effect: What it saves or does, and what it costs.
        keeps_results: Whether the training stays the same, to rounding.
    """

    settings: str
    effect: str
    keeps_results: bool = True

    def __str__(self) -> str:
        return f"{self.settings} ({self.effect})"


def remedies(given: Circumstances) -> list[Remedy]:
    """The ways out that apply, the cheapest first."""
    if given.stage == "validation":
        return _of_validation(given)
    found = [*_of_length(given), *_of_split(given)]
    if not given.host:
        found += [*_of_fragments(given), *_of_xla(given), *_of_workspace(given), *_of_precision(given)]
    return [*found, *_of_batch(given), *_of_recomputation(given), *_of_host(given)]


def smaller_batch(batch_size: int) -> Optional[int]:
    """Half of a batch, in multiples of 8 where it has as many rows; None for a single row."""
    if batch_size < 2:
        return None
    half = batch_size // 2
    return half // MULTIPLE * MULTIPLE if half >= MULTIPLE else half


def largest_batch(batch_size: int, needed_bytes: int, fixed_bytes: int, limit_bytes: int) -> Optional[int]:
    """The batch that the memory can hold at most, if what is not fixed grows with the batch.

    The step failed before it needed its most, so ``needed_bytes`` is too small and the result an upper bound.

    Args:
        batch_size: Rows of the batch that failed.
        needed_bytes: In use when it failed, and what was asked for.
        fixed_bytes: Weights, gradients and optimiser, which do not depend on the batch.
        limit_bytes: What the allocator may have.

    Returns:
        None where not even one row fits.
    """
    growing = max(needed_bytes - fixed_bytes, 1)
    rows = math.floor(batch_size * (limit_bytes - fixed_bytes) / growing)
    rows = min(rows, batch_size - 1)
    return None if rows < 1 else (rows // MULTIPLE * MULTIPLE if rows >= MULTIPLE else rows)


def _of_validation(given: Circumstances) -> list[Remedy]:
    half = smaller_batch(given.batch_size) if given.batch_size else None
    size = f"validation_batch_size={half}" if half else "a smaller validation_batch_size"
    return [
        Remedy(f"model.fit(..., {size})", "validation keeps no activations, so the training's own size fits mostly")
    ]


def _of_length(given: Circumstances) -> list[Remedy]:
    if not given.varies:
        return []
    return [
        Remedy(
            "cut or bucket the data by length in tf.data",
            "sizes vary from batch to batch, and one long batch decides the peak",
            keeps_results=False,
        )
    ]


def _of_split(given: Circumstances) -> list[Remedy]:
    alone = given.replicas == 1 and given.reduce_every == 1
    if given.on_oom == "split" or not alone or not given.batch_size or given.batch_size < 2:
        return []
    effect = "the batch is trained in parts and the update is that of the whole; batch normalisation sees the parts"
    return [Remedy("memory.on_oom: split", effect)]


def _of_fragments(given: Circumstances) -> list[Remedy]:
    if given.asked_bytes is None or given.free_bytes is None or given.free_bytes < given.asked_bytes:
        return []
    return [
        Remedy(
            "devices.allocator: cuda_malloc_async",
            "enough is free, in pieces that are too small: the pool is fragmented",
        )
    ]


def _of_xla(given: Circumstances) -> list[Remedy]:
    if given.compiled or given.compute_capability is None:
        return []
    return [Remedy("xla.jit: model", "fused operations keep fewer results: ResNet-50 in float16 took 38 % less")]


def _of_workspace(given: Circumstances) -> list[Remedy]:
    smaller = start_mb(given.memory_mb) // 2 if given.memory_mb else _LEAST_KNOWN_MB
    set_already = given.workspace_limit_mb is not None and given.workspace_limit_mb <= smaller
    if given.compiled or not given.convolutions or given.compute_capability is None or set_already:
        return []
    now = f"{given.workspace_limit_mb} MiB" if given.workspace_limit_mb else "TensorFlow's default of 8192 MiB"
    effect = f"instead of {now} of scratch memory for a convolution; a faster algorithm may be ruled out"
    return [Remedy(f"cudnn.workspace_limit_mb: {smaller}", effect)]


def _of_precision(given: Circumstances) -> list[Remedy]:
    if given.half_precision or given.compute_capability is None or given.compute_capability < _TENSOR_CORES:
        return []
    effect = "activations take half: ResNet-50 took 30 % less, and was faster"
    return [Remedy("mixed_precision.policy: mixed_float16", effect, keeps_results=False)]


def _of_batch(given: Circumstances) -> list[Remedy]:
    half = smaller_batch(given.batch_size) if given.batch_size else None
    if half is None or given.batch_size is None:
        return []
    times = -(-given.batch_size // half) * given.reduce_every
    key = "fit.batch_size" if "fit.batch_size" in given.keys else "batch_size"
    effect = f"{times} batches make one update, so that the learning rate stays right"
    return [Remedy(f"{key}: {half * given.replicas} with communication.reduce_every: {times}", effect)]


def _of_recomputation(given: Circumstances) -> list[Remedy]:
    if not any(key == "memory.recompute" or key.startswith("memory.recompute.") for key in given.keys):
        return []
    return [Remedy("memory.recompute", "activations are computed again instead of kept: a third more computation")]


def _of_host(given: Circumstances) -> list[Remedy]:
    if not given.host:
        return []
    return [
        Remedy(
            "smaller shuffle buffers, no cache() in memory, fewer prefetched batches",
            "the host's memory ran out, which holds the data too",
        )
    ]
