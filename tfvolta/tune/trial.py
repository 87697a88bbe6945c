"""One batch size that was tried, and how that ended."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Mapping, Optional


class Ending(str, enum.Enum):
    """How a trial ended."""

    FITS = "fits"
    OUT_OF_MEMORY = "out of memory"
    TIMEOUT = "timeout"
    CRASH = "crash"
    REFUSED = "refused"
    LARGER_THAN_DATA = "batch larger than the data"

    @property
    def bounds(self) -> bool:
        """Whether a larger batch need not be tried."""
        return self in (Ending.OUT_OF_MEMORY, Ending.TIMEOUT, Ending.CRASH, Ending.LARGER_THAN_DATA)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What the script trains, as its own process saw it.

    Attributes:
        batch: Rows of the script's own batch; None where it does not say.
        optimizer: Class of its optimiser.
        learning_rate: Its learning rate; None where that cannot be read.
        has_schedule: Whether it has a schedule of its own.
        replicas: Devices that train in step.
        epochs: How often its fit goes through the data; None where that is not known.
    """

    batch: Optional[int] = None
    optimizer: str = ""
    learning_rate: Optional[float] = None
    has_schedule: bool = False
    replicas: int = 1
    epochs: Optional[int] = None

    @classmethod
    def of(cls, content: Optional[Mapping[str, Any]]) -> Optional[Trained]:
        """From JSON values."""
        return None if content is None else cls(**content)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        batch: Rows of a batch, of all replicas together.
        ending: How it ended.
        reason: Why, in a sentence; empty for one that fits.
        steps: Steps that were timed.
        examples_per_second: Median over the timed steps; None where none was.
        seconds: What the whole trial took, start of the process included.
        peak_bytes: Memory at its peak by device, ``host`` for the process; only what was measured.
        trained: What the script trains; None where the trial did not come so far.
        rows: How many rows fit is given, where a batch is larger; None otherwise.
    """

    batch: int
    ending: Ending
    reason: str = ""
    steps: int = 0
    examples_per_second: Optional[float] = None
    seconds: float = 0.0
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    trained: Optional[Trained] = None
    rows: Optional[int] = None

    @property
    def fits(self) -> bool:
        """Whether a few steps were trained at this size."""
        return self.ending is Ending.FITS

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON values."""
        return {**dataclasses.asdict(self), "ending": self.ending.value, "peak_bytes": dict(self.peak_bytes)}
