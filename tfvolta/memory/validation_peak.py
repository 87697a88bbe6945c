"""Whether validation needs more memory than training, which it should not: it keeps no activations."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

from tfvolta.memory.exhaustion import size_text
from tfvolta.memory.remedy import MULTIPLE

_NOISE = 0.01  # of the training's peak; allocators round sizes up


@dataclasses.dataclass(frozen=True)
class ValidationPeak:
    """Memory of one device at its peak, before and after an evaluation inside a fit.

    Attributes:
        device: Such as ``GPU:0``.
        training_bytes: Peak of the training so far.
        validation_bytes: Peak after the evaluation.
        resident_bytes: In use when the evaluation began: weights, slots and what else stays.
        batch: Rows of a validation batch; None where not known.
    """

    device: str
    training_bytes: int
    validation_bytes: int
    resident_bytes: int
    batch: Optional[int] = None

    @property
    def growth_bytes(self) -> int:
        """What the evaluation has added to the peak; 0 for rounding of the allocator."""
        growth = self.validation_bytes - self.training_bytes
        return growth if growth > _NOISE * self.training_bytes else 0

    @property
    def batch_at_most(self) -> Optional[int]:
        """The validation batch whose evaluation stays under the training's peak; None where that cannot be said."""
        needed = self.validation_bytes - self.resident_bytes
        if not self.growth_bytes or not self.batch or needed <= 0:
            return None
        rows = math.floor(self.batch * (self.training_bytes - self.resident_bytes) / needed)
        rows = rows // MULTIPLE * MULTIPLE if rows >= MULTIPLE else rows
        return rows if rows > 0 else None

    def __str__(self) -> str:
        """What a reader should know, where the peak has grown."""
        most = self.batch_at_most
        advice = f"validation_batch_size={most}" if most else "a smaller validation_batch_size"
        return (
            f"{self.device}: validation raised the peak of memory from {size_text(self.training_bytes)} to "
            f"{size_text(self.validation_bytes)}; with model.fit(..., {advice}) it stays inside the training's."
        )

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        grown = {"growth_bytes": self.growth_bytes, "batch_at_most": self.batch_at_most}
        return {**dataclasses.asdict(self), **grown}
