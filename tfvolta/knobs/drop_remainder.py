"""Leaving out the last, smaller batch of an epoch."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

FIX = "give fit batches of one size: model.fit(tfvolta.data.static_batches(dataset)), or batch(n, drop_remainder=True)"


@dataclasses.dataclass(frozen=True)
class DataChange:
    """What was done to the data that a script gave to ``fit``.

    Attributes:
        static: Whether every batch has the same size now.
        message: What was done, or why nothing could be.
        fix: What helps, where that is not what helps in general.
    """

    static: bool
    message: str
    fix: str = ""


class DropRemainder(Knob):
    """Leaves out the last batch of an epoch where it is smaller than the others, so that XLA compiles one shape.

    Under ``tfvolta run`` the data given to ``fit`` are changed; elsewhere ``tfvolta.data.static_batches`` does it, and
    this knob looks whether it was done.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "drop_remainder"
    keys: ClassVar[tuple[str, ...]] = ("xla.drop_remainder", "xla.remainder")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("K5", "M9")
    changes_results = True
    undoable = False
    fix: ClassVar[str] = FIX

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("xla.drop_remainder")
        return {"drop": True, "keep": False}.get(config.get("xla.remainder")) if asked is None else asked

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        if not value:
            return Forecast(Status.APPLIED, "The last, smaller batch of an epoch is kept, which is the default.")
        return Forecast(
            Status.APPLIED,
            "Under tfvolta run the last, smaller batch of an epoch is left out; a script of your own gives fit "
            "tfvolta.data.static_batches(dataset).",
        )

    def apply(self, value: Any, context: Context) -> None:
        """The data that fit is given carry it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        if not value:
            return Outcome(Status.APPLIED, "The last, smaller batch of an epoch is kept.")
        change = context.saved.get(self.name)
        if change is not None and not change.static:
            return Outcome(Status.NO_EFFECT, f"Nothing was changed. {change.message}", {}, change.fix or self.fix)
        data = context.bridge.fit_data(context.model)
        if data is None:
            if change is not None:
                return Outcome(Status.APPLIED, change.message)
            return Outcome(Status.PENDING, "The data that fit is given will show it.")
        observed = {"batch": data.batch, "rows": data.rows, "remainder": data.remainder}
        if data.remainder == 0:
            return Outcome(Status.APPLIED, change.message if change else "Every batch has the same size.", observed)
        if data.remainder is None:
            why = f"data of kind {data.kind} do not say whether every batch has the same size"
            return Outcome(Status.UNVERIFIABLE, f"Not changed: {why}. {self.fix}.", observed)
        return Outcome(
            Status.NO_EFFECT,
            f"fit was given {data.rows} rows in batches of {data.batch}, which leaves a remainder of {data.remainder}.",
            observed,
            self.fix,
        )
