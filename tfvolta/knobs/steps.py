"""Batches per call of the train function."""

from __future__ import annotations

from typing import Any

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


class StepsPerExecution(Knob):
    """Runs several training steps in one call from Python, which saves the time between them.

    Binds: when fit makes its data iterator. A callback is too late: Keras then runs more steps than it counts.
    """

    name = "steps_per_execution"
    keys = ("fit.steps_per_execution",)
    phase = Phase.COMPILE
    closes_at = Moment.FIT_STARTED
    techniques = ("K5",)
    move_to = "write it where the model is compiled: model.compile(..., steps_per_execution=N)"

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        if value == 1:
            return Forecast(Status.APPLIED, "Each batch is one call of the train function, which is the default.")
        return Forecast(
            Status.APPLIED,
            f"{value} batches run in one call of the train function; callbacks are called once for them, with the last"
            " batch's number.",
        )

    def apply(self, value: Any, context: Context) -> None:
        if recall(context, self.name) is None:
            remember(context, self.name, context.bridge.steps_per_execution(context.model))
        context.bridge.set_steps_per_execution(context.model, value)

    def verify(self, value: Any, context: Context) -> Outcome:
        steps = context.bridge.steps_per_execution(context.model)
        observed = {"steps_per_execution": steps}
        if steps != value:
            return Outcome(
                Status.NO_EFFECT,
                f"The model runs {steps} batch(es) per call; compile it with steps_per_execution={value}.",
                observed,
            )
        return Outcome(Status.APPLIED, f"The model runs {steps} batch(es) per call.", observed)

    def undo(self, context: Context) -> bool:
        if context.closed(self.closes_at) is not None:
            return False
        models = forget_all(context, self.name)
        for changed in models:
            changed.bridge.set_steps_per_execution(changed.model, changed.value)
        return bool(models)
