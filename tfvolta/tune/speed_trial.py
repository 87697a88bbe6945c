"""How one process of a speed trial went."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Optional

from tfvolta.measure.statistics import mad, median
from tfvolta.tune.result import Ending, Measured


@dataclasses.dataclass(frozen=True)
class Block:
    """Some steps that were timed together.

    Attributes:
        seconds: Their time.
        batches: Their number.
        examples: Examples in them; None where they are not counted.
    """

    seconds: float
    batches: int
    examples: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class SpeedTrial:
    """One process.

    Attributes:
        ending: How it ended.
        reason: Why; empty where it was measured to its end.
        blocks: What was timed.
        losses: Examples (batches, where they are not counted) since the first step, and the mean loss over them.
        startup_seconds: Until the first step began; None where none did.
        first_step_seconds: The first call of the train function; None where it did not return.
        seconds: The whole process.
        peak_bytes: Memory at its peak by device, ``host`` for its processes.
        traits: What the model is like, where that was asked for.
        notes: What a reader should know.
    """

    ending: Ending
    reason: str = ""
    blocks: tuple[Block, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    startup_seconds: Optional[float] = None
    first_step_seconds: Optional[float] = None
    seconds: float = 0.0
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    traits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether its speed is known."""
        return self.ending in ("measured", "stopped") and bool(self.blocks)

    @property
    def counts_examples(self) -> bool:
        """Whether examples were counted in every block."""
        return bool(self.blocks) and all(block.examples for block in self.blocks)

    @property
    def steps_per_second(self) -> Optional[float]:
        """Median over the blocks."""
        return median([block.batches / block.seconds for block in self.blocks]) if self.blocks else None

    @property
    def examples_per_second(self) -> Optional[float]:
        """Median over the blocks; None where examples are not counted."""
        if not self.counts_examples:
            return None
        return median([(block.examples or 0) / block.seconds for block in self.blocks])

    @property
    def rate(self) -> float:
        """Examples a second, or batches where examples are not counted; 0 where nothing was timed."""
        return self.examples_per_second or self.steps_per_second or 0.0

    @property
    def spread(self) -> Optional[float]:
        """Median absolute deviation of the blocks' rates, as a share of their median."""
        rates = [(block.examples or block.batches) / block.seconds for block in self.blocks]
        return mad(rates) / median(rates) if rates else None

    def loss_at(self, examples: int) -> Optional[float]:
        """Mean loss over the first examples, between two points that were noted; None beyond the last."""
        points = self.losses
        if not points or examples > points[-1][0]:
            return None
        before = points[0]
        for point in points:
            if point[0] >= examples:
                span = point[0] - before[0]
                part = (examples - before[0]) / span if span > 0 else 1.0
                if not math.isfinite(point[1]):
                    return point[1]
                return before[1] + max(0.0, part) * (point[1] - before[1])
            before = point
        return None

    def measured(self, settings: Mapping[str, Any], seed: int, loss_examples: Optional[int] = None) -> Measured:
        """The row of a result.

        Args:
            settings: What it was measured with.
            seed: Its seed.
            loss_examples: Where the loss is compared; its last point when None.
        """
        if loss_examples is None and self.losses:
            loss_examples = self.losses[-1][0]
        loss = None if loss_examples is None else self.loss_at(loss_examples)
        finite = loss is not None and math.isfinite(loss)
        return Measured(
            settings=dict(settings),
            ending=self.ending,
            reason=self.reason,
            seed=seed,
            examples_per_second=self.examples_per_second,
            steps_per_second=self.steps_per_second,
            spread=self.spread,
            blocks=len(self.blocks),
            steps=sum(block.batches for block in self.blocks),
            startup_seconds=self.startup_seconds,
            first_step_seconds=self.first_step_seconds,
            seconds=self.seconds,
            peak_bytes=dict(self.peak_bytes),
            loss=loss if finite else None,
            loss_examples=loss_examples if finite else None,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values; ``of`` reads them back."""
        content = dataclasses.asdict(self)
        content["blocks"] = [[each.seconds, each.batches, each.examples] for each in self.blocks]
        content["losses"] = [[count, loss if math.isfinite(loss) else None] for count, loss in self.losses]
        return content

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> SpeedTrial:
        """From JSON values.

        Raises:
            KeyError, TypeError, ValueError: They are not what ``to_json`` gives.
        """
        given = dict(content)
        given["blocks"] = tuple(Block(*each) for each in given.get("blocks", ()))
        given["losses"] = tuple((int(n), math.inf if loss is None else loss) for n, loss in given.get("losses", ()))
        given["notes"] = tuple(given.get("notes", ()))
        return cls(**given)
