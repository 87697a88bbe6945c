"""How broken up a GPU's free memory is between two steps, and what follows for the choice of the allocator.

TensorFlow's pool says so with each allocation while a profile is taken: the share of its free memory outside of the
largest free block, what it has given away, and what it may take. Between two steps weights and slots are held and the
memory of activations is free, so that the share says whether what stays lies in the way of what comes.
Source: ``BFCAllocator::AddTraceMe`` in third_party/xla/xla/tsl/framework/bfc_allocator.cc.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Iterable, Mapping, Optional

from tfvolta.memory.exhaustion import size_text
from tfvolta.memory.pool import ASYNC_UNAVAILABLE, GOAL

# A pool that has room left takes more of the card before it refuses anything.
_FULL = 0.8
_POOL = re.compile(r"GPU_(\d+)_bfc")


@dataclasses.dataclass(frozen=True)
class Fragments:
    """The pool of one GPU between two steps.

    Attributes:
        device: Such as ``GPU:0``.
        share: Of the free memory, outside of the largest free block.
        in_use_bytes: Given away then.
        peak_bytes: The most that was given away, since the peak was last started anew.
        limit_bytes: What the pool may take of the card.
    """

    device: str
    share: float
    in_use_bytes: int
    peak_bytes: int
    limit_bytes: int

    @property
    def is_broken_up(self) -> bool:
        """Whether more is outside of the largest block than is usually put up with."""
        return self.share > GOAL

    @property
    def is_full(self) -> bool:
        """Whether the peak comes near to what the pool may take."""
        return self.peak_bytes > _FULL * self.limit_bytes

    @property
    def allocator(self) -> str:
        """The value of ``devices.allocator`` that is advised."""
        return "cuda_malloc_async" if self.is_broken_up and self.is_full else "default"

    def __str__(self) -> str:
        """The figure, and what to do."""
        used = f"the peak takes {100 * self.peak_bytes / self.limit_bytes:.0f} % of {size_text(self.limit_bytes)}"
        said = f"{self.device}: {100 * self.share:.1f} % of the pool's free memory is outside of its largest block"
        if not self.is_broken_up:
            return f"{said}; under {100 * GOAL:.0f} %, so keep devices.allocator: default"
        if not self.is_full:
            return f"{said}, but {used}: the pool can grow, so keep devices.allocator: default"
        return f"{said}, and {used}: try devices.allocator: cuda_malloc_async, which maps free pages together"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**dataclasses.asdict(self), "advised_allocator": self.allocator}


def fragments_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Fragments]:
    """The pool of each GPU as its last event describes it; none for other allocators, which name no share.

    Args:
        events: From ``tfvolta.footprint.profile.memory_events``.
    """
    found: dict[str, Fragments] = {}
    for event in events:
        pool = _POOL.fullmatch(str(event.get("allocator_name", "")))
        share = event.get("fragmentation")
        if pool is None or share is None or not math.isfinite(float(share)):
            continue
        in_use = int(event.get("bytes_allocated", 0))
        limit = int(event.get("bytes_available", 0)) + int(event.get("bytes_reserved", 0)) + in_use
        if limit > 0:
            device = f"GPU:{pool[1]}"
            peak = int(event.get("peak_bytes_in_use", in_use))
            found[device] = Fragments(device, min(max(float(share), 0.0), 1.0), in_use, peak, limit)
    return found


def why_unknown(allocator: Optional[str]) -> str:
    """Why a GPU's pool has said nothing.

    Args:
        allocator: Value of ``TF_GPU_ALLOCATOR``.
    """
    return ASYNC_UNAVAILABLE if allocator == "cuda_malloc_async" else "the allocator has told the profiler nothing"
