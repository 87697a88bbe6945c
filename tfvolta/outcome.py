"""How a setting ended: one of five outcomes, never silence."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Mapping


class Status(str, enum.Enum):
    """The five ways in which a setting can end, and PENDING until it has.

    A run that is interrupted leaves PENDING behind for what it did not reach.
    """

    PENDING = "PENDING"
    APPLIED = "APPLIED"  # read back, or seen in behaviour
    NO_EFFECT = "NO_EFFECT"  # it was set and changes nothing, with the reason
    LATE = "LATE"  # its phase was over; with what closed it and the line to move
    NOT_APPLICABLE = "NOT_APPLICABLE"  # this machine or stack has no such thing
    UNVERIFIABLE = "UNVERIFIABLE"  # set in time, and nothing can be read back; with why


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one setting ended.

    Attributes:
        status: One of the five.
        message: One sentence for a person: what was seen, or why not, and the fix where there is one.
        observed: What was read back or counted, JSON values only.
        fix: The line to write where the message needs one; shown with errors and warnings.
    """

    status: Status
    message: str = ""
    observed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        return {"status": self.status.value, "message": self.message, "observed": dict(self.observed)}
