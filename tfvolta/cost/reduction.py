"""How a strategy reduces gradients: what goes into one message, when it can start, and what stays visible of it.

What each kind really does, TensorFlow 2.15 and 2.21 and Horovod 0.28.1:

- ``mirrored`` and ``multi_worker_mirrored`` put all gradients into one pack, so nothing starts before the last gradient
  exists. With ``pack_mb`` they make packs of whole gradients, last layer first, each of at least that size
  (``cross_device_utils.group_by_size``), and a pack starts when it is complete.
- ``mirrored`` with ``num_packs`` (NcclAllReduce, HierarchicalCopyAllReduce) concatenates all gradients before it cuts
  the packs, so that none can start early; 0 is one message for each gradient.
- ``horovod`` looks every cycle (1 ms) at what is there and fuses it up to a threshold (128 MiB).
- Under XLA all gradients come out of the compiled program together, at its end; every kind's messages start there.
- Gradients that are added up over several passes are reduced when the last sum is complete: no overlap is assumed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Optional

from tfvolta.cost.all_reduce import all_reduce_ms
from tfvolta.cost.fabric import Fabric
from tfvolta.cost.gradients import FLOAT32_BYTES, Gradients

MIB = 1024 * 1024
KINDS = ("mirrored", "multi_worker_mirrored", "horovod")
HOROVOD_FUSION_MB = 128
HOROVOD_CYCLE_MS = 1.0
# The gradients of inputs and of weights cost as much as the forward pass each.
BACKWARD_SHARE = 2.0 / 3.0
_FLOAT16_BYTES = 2


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The settings that decide how gradients are reduced.

    Attributes:
        kind: Strategy kind, one of ``KINDS``.
        pack_mb: Size of a pack or of Horovod's fusion, MiB; the kind's default when None.
        num_packs: Packs, for ``mirrored``; excludes ``pack_mb``.
        compression: ``none``, or ``fp16`` for half the bytes.
        reduce_every: Backward passes whose gradients are added up before one all-reduce and one update.
        xla: Whether forward and backward pass are compiled as a whole.
        algorithm: ``auto`` for NCCL's own choice, ``ring``, ``tree`` or ``hierarchical``.
        cycle_time_ms: How often Horovod looks for gradients.
    """

    kind: str = "mirrored"
    pack_mb: Optional[float] = None
    num_packs: Optional[int] = None
    compression: str = "none"
    reduce_every: int = 1
    xla: bool = False
    algorithm: str = "auto"
    cycle_time_ms: float = HOROVOD_CYCLE_MS

    @property
    def overlaps(self) -> bool:
        """Whether reducing can start before the backward pass is over."""
        if self.xla or self.reduce_every > 1:
            return False
        return self.kind == "horovod" or bool(self.pack_mb) or self.num_packs == 0

    @property
    def bytes_each(self) -> int:
        """Bytes in which one parameter's gradient travels."""
        return _FLOAT16_BYTES if self.compression == "fp16" else FLOAT32_BYTES


@dataclasses.dataclass(frozen=True)
class Timeline:
    """One reduction of all gradients.

    Attributes:
        messages: Number of all-reduces.
        busy_ms: Time in which something is reduced, packed or unpacked.
        exposed_ms: How much later than the backward pass the last of it ends.
    """

    messages: int
    busy_ms: float
    exposed_ms: float


def message_ms(fabric: Fabric, reduction: Reduction, parameters: int) -> float:
    """Milliseconds for one message: packing, the all-reduce, unpacking, and casts under compression.

    Packing and unpacking read and write every byte once, each cast reads one type and writes the other.
    """
    size = parameters * reduction.bytes_each
    moved = 0 if reduction.num_packs == 0 else 4 * size
    if reduction.compression == "fp16":
        moved += 2 * parameters * (FLOAT32_BYTES + _FLOAT16_BYTES)
    return all_reduce_ms(fabric, size, reduction.algorithm) + moved / fabric.memory_gb_s * 1e-6


def reduce(fabric: Fabric, gradients: Gradients, reduction: Reduction, pass_ms: float) -> Timeline:
    """When the messages of one step are sent, and what of them is not hidden behind the backward pass.

    Args:
        fabric: GPUs and links.
        gradients: What is reduced.
        reduction: How.
        pass_ms: One forward and backward pass; its last two thirds are the backward pass.
    """
    if not reduction.overlaps:
        return _at_the_end(fabric, gradients, reduction)
    return _timeline(fabric, gradients, reduction, BACKWARD_SHARE * pass_ms)


@functools.lru_cache(maxsize=1024)
def _at_the_end(fabric: Fabric, gradients: Gradients, reduction: Reduction) -> Timeline:
    """Nothing depends on how long the pass was; inverting a prediction asks for the same often."""
    return _timeline(fabric, gradients, reduction, 0.0)


def _timeline(fabric: Fabric, gradients: Gradients, reduction: Reduction, backward_ms: float) -> Timeline:
    """One message after another, each when it is there and the one before is done."""
    if fabric.ranks < 2:
        return Timeline(0, 0.0, 0.0)
    packs = _packs(reduction, [(count, share * backward_ms) for count, share in gradients.ready()])
    now = busy = 0.0
    for parameters, moment in packs:
        cost = message_ms(fabric, reduction, parameters)
        busy += cost
        now = max(now, moment) + cost
    return Timeline(len(packs), busy, max(0.0, now - backward_ms))


def _packs(reduction: Reduction, ready: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Parameters of each message and when it can be sent."""
    if reduction.kind == "horovod":
        return _fusions(reduction, ready)
    if reduction.num_packs == 0:
        return ready
    if not reduction.pack_mb:
        parameters, last = sum(count for count, _ in ready), max(moment for _, moment in ready)
        packs = min(reduction.num_packs or 1, parameters)
        cuts = [parameters * number // packs for number in range(packs + 1)]
        return [(after - before, last) for before, after in zip(cuts, cuts[1:])]
    # Packs are sized in float32: a cast to float16 comes behind it.
    least, found, count = reduction.pack_mb * MIB / FLOAT32_BYTES, [], 0
    for number, (more, moment) in enumerate(ready):
        count += more
        if count >= least or number == len(ready) - 1:
            found.append((count, moment))
            count = 0
    return found


def _fusions(reduction: Reduction, ready: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Horovod's messages: what is there at the end of a cycle is fused up to the threshold; NCCL queues the rest."""
    limit = (HOROVOD_FUSION_MB if reduction.pack_mb is None else reduction.pack_mb) * MIB / reduction.bytes_each
    found: list[tuple[int, float]] = []
    for count, moment in ready:
        cycle = (math.floor(moment / reduction.cycle_time_ms) + 1) * reduction.cycle_time_ms
        if found and found[-1][1] == cycle and found[-1][0] + count <= limit:
            found[-1] = (found[-1][0] + count, cycle)
        else:
            found.append((count, cycle))
    return found
