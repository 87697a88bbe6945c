"""How broken up an allocator's free memory is.

TensorFlow's pool (BFC) defines fragmentation as the share of its free memory that lies outside of the largest free
block. ``tf.config.experimental.get_memory_info`` gives memory in use and the peak alone. The share comes with each
allocation while a profile is taken (``tfvolta.memory.fragments``), and the block's size is written to the log when
memory runs out. Beside these there is a bound: an allocation that fails although as much is free shows that every free
block was smaller.

``cuda_malloc_async`` maps pages together and has no free blocks to count; the host's allocator keeps no statistics.

Source: ``BFCAllocator::GetFragmentation``, ``DumpMemoryLog`` and ``AddTraceMe`` in
third_party/xla/xla/tsl/framework/bfc_allocator.cc; ``AllocatorStats::DebugString`` in allocator.cc.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterable, Mapping, Optional

GOAL = 0.05  # the share that is usually asked for: less than 5 %
ASYNC_UNAVAILABLE = "cuda_malloc_async maps free pages together, so that there are no blocks to count"
_STATISTICS = re.compile(r"Limit:\s*(\d+)\s+InUse:\s*(\d+)\s+MaxInUse:\s*(\d+)(.*)", re.S)
_LARGEST = re.compile(r"LargestFreeBlock:\s*(\d+)")
_RESERVED = re.compile(r"(?<!Peak)Reserved:\s*(\d+)")


@dataclasses.dataclass(frozen=True)
class Pool:
    """An allocator's pool at one moment, in bytes.

    Attributes:
        limit_bytes: What it may take.
        in_use_bytes: What it has given away.
        peak_bytes: The most that it had given away.
        largest_free_bytes: Its largest free block; None where that is not known.
        reserved_bytes: What it holds of the device; None likewise.
    """

    limit_bytes: int
    in_use_bytes: int
    peak_bytes: int
    largest_free_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None

    @property
    def free_bytes(self) -> int:
        """What it has not given away: of what it holds, where that is known."""
        return max((self.reserved_bytes or self.limit_bytes) - self.in_use_bytes, 0)

    @property
    def fragmentation(self) -> Optional[float]:
        """Share of the free memory outside of the largest free block; None where that block is not known."""
        return None if self.largest_free_bytes is None else fragmentation(self.free_bytes, self.largest_free_bytes)


def fragmentation(free_bytes: int, largest_free_bytes: int) -> float:
    """Share of the free memory outside of the largest free block; 0 where nothing is free."""
    return 0.0 if free_bytes <= 0 else max(1.0 - largest_free_bytes / free_bytes, 0.0)


def least_fragmentation(asked_bytes: Optional[int], free_bytes: Optional[int]) -> Optional[float]:
    """What a failed allocation proves: all free blocks were smaller than it; None where it proves nothing."""
    if asked_bytes is None or free_bytes is None or free_bytes <= asked_bytes:
        return None
    return fragmentation(free_bytes, asked_bytes)


def from_log(text: str) -> Optional[Pool]:
    """The pool as TensorFlow's log describes it when memory ran out; None where there is no such text."""
    found = _STATISTICS.search(text)
    if found is None:
        return None
    largest, reserved = _LARGEST.search(found[4]), _RESERVED.search(found[4])
    held = int(reserved[1]) if reserved else 0
    # TensorFlow fills in neither in some versions, and writes 0: a block of 0 bytes is a statement only if all is used.
    block = int(largest[1]) if largest and (int(largest[1]) or found[1] == found[2]) else None
    return Pool(int(found[1]), int(found[2]), int(found[3]), block, held or None)


def worst_of(events: Iterable[Mapping[str, Any]]) -> Optional[float]:
    """The highest fragmentation in the memory events of a profiler trace; None where they name none.

    Args:
        events: Statistics of the events ``MemoryAllocation`` and ``MemoryDeallocation``, by name.
    """
    shares = [float(each["fragmentation"]) for each in events if each.get("fragmentation") is not None]
    return max(shares, default=None)
