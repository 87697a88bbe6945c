"""The first batch size of a search, from an estimate of the memory that the script's step takes on a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.tune.batch_search import MULTIPLE

# Of the memory that a first batch may need by an estimate: the estimate may be a tenth too small.
SHARE = 0.85
# More rows are hardly ever wanted, and data may have fewer: from here on sizes double.
_MOST = 4096


@dataclasses.dataclass(frozen=True)
class FirstSize:
    """Where a search begins.

    Attributes:
        size: Rows of the first batch.
        stride: How far from it the next ones are, at first; None where nothing is known and sizes double.
        reason: Why, in a sentence.
    """

    size: int
    stride: Optional[int]
    reason: str


@dataclasses.dataclass(frozen=True)
class Growth:
    """Memory of one GPU as a line over its batch.

    Attributes:
        fixed_bytes: Without a batch.
        row_bytes: Of each row.
    """

    fixed_bytes: float
    row_bytes: float

    def needed(self, rows: int) -> int:
        """Bytes for so many rows."""
        return int(self.fixed_bytes + self.row_bytes * rows)


def growth_of(found: Mapping[str, Any], jit: Optional[str]) -> Optional[Growth]:
    """Memory over the batch, from two estimates; None where they do not grow.

    Args:
        found: What ``tfvolta.script.footprint`` says with ``compare_half``.
        jit: Value of ``xla.jit``. Where it decides for itself, the step may be compiled or not: the larger one counts.
    """
    names = {"model": ("compiled",), "off": ("plain",)}.get(jit or "off", ("plain", "compiled"))
    lines = []
    for name in names:
        one, other = found["memory"][name], found["compared"][name]
        low, high = sorted((one, other), key=lambda each: int(each["batch"]))
        rows = high["batch"] - low["batch"]
        slope = (high["device"] - low["device"]) / rows if rows else 0.0
        if slope <= 0:
            return None
        lines.append(Growth(low["device"] - slope * low["batch"], slope))
    return max(lines, key=lambda line: line.row_bytes)


def start_batch(growth: Optional[Growth], limit_bytes: int, replicas: int = 1, fallback: int = 32) -> FirstSize:
    """The largest size that an estimate is sure to fit.

    Args:
        growth: Memory of one GPU over its rows; None where it is not known.
        limit_bytes: What each GPU has.
        replicas: GPUs that share a batch.
        fallback: The size where nothing can be said.
    """
    if growth is None:
        return FirstSize(fallback, None, "memory does not grow with the batch in an estimate")
    rows = int(min(max(SHARE * limit_bytes - growth.fixed_bytes, 0.0) / growth.row_bytes, _MOST))
    size = max(rows * replicas // MULTIPLE * MULTIPLE, MULTIPLE)
    stride = None if rows == _MOST else max(size // MULTIPLE // MULTIPLE * MULTIPLE, MULTIPLE)
    per_gpu = -(-size // replicas)
    needs = growth.needed(per_gpu) / 2**20
    reason = f"an estimate says that {per_gpu} rows take {needs:,.0f} of {limit_bytes / 2**20:,.0f} MiB"
    return FirstSize(size, stride, reason)
