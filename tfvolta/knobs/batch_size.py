"""The number of rows in a batch, in place of the script's."""

from __future__ import annotations

from typing import Any

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_MULTIPLE = 8
FIX = "run the script with tfvolta run, or write model.fit(x, y, batch_size={0}) or dataset.batch({0})"


class BatchSize(Knob):
    """Trains with batches of another size than the script's.

    Under ``tfvolta run`` the data given to ``fit`` are batched anew; elsewhere this knob looks whether they have that
    size.

    Binds: when fit makes its data iterator, before the first callback is called.
    """

    name = "batch_size"
    keys = ("fit.batch_size",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("M10",)
    changes_results = True
    undoable = False

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        odd = ""
        if facts.gpus and value % _MULTIPLE:
            odd = f" {value} is no multiple of {_MULTIPLE}, which Tensor Cores want in float16."
        return Forecast(Status.APPLIED, f"Under tfvolta run the data are given to fit in batches of {value} rows.{odd}")

    def apply(self, value: Any, context: Context) -> None:
        """The data that fit is given carry it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        change = context.saved.get(self.name)
        if change is not None and not change.static:
            return Outcome(Status.NO_EFFECT, f"Not changed. {change.message}", {}, FIX.format(value))
        data = context.bridge.fit_data(context.model)
        if data is None:
            if change is not None:
                return Outcome(Status.APPLIED, change.message)
            return Outcome(Status.PENDING, "The data that fit is given will show it.")
        observed = {"batch": data.batch, "rows": data.rows}
        if data.batch is None:
            why = f"data of kind {data.kind} do not say how many rows their batches have"
            return Outcome(Status.UNVERIFIABLE, f"{change.message if change else 'Not changed.'} {why}.", observed)
        if data.batch != value:
            message = f"fit was given batches of {data.batch} rows."
            return Outcome(Status.NO_EFFECT, message, observed, FIX.format(value))
        return Outcome(Status.APPLIED, change.message if change else f"Batches have {value} rows.", observed)
