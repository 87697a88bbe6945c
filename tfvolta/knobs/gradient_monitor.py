"""Figures of the gradients in some steps of a fit."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.bridge.layer_patterns import Pattern, patterns_of
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_JOURNAL = "gradient monitor journal"


@dataclasses.dataclass
class Seen:
    """What the running fit's callback has seen; it keeps this under the knob's name in ``Context.saved``.

    Attributes:
        samples: Steps that were looked at.
        groups: Names of the groups that their figures are in.
        tensorboard: Folder that takes scalars; empty where none was asked for, or another worker writes.
        scalars: How many it had after the first of these steps.
        fault: Why it takes none.
    """

    samples: int = 0
    groups: tuple[str, ...] = ()
    tensorboard: str = ""
    scalars: int = 0
    fault: str = ""


class GradientMonitor(Knob):
    """Looks at the gradients of some steps in their true size: norm, zeros, and what float16 would lose of them.

    Binds: when the train step is traced. Steps that are looked at have a train function of their own.
    """

    name = "gradient_monitor"
    keys = ("gradient_monitor.every_steps", "gradient_monitor.groups", "gradient_monitor.tensorboard")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P2", "P3")

    def value(self, config: Any) -> Optional[Any]:
        return None if config.gradient_monitor is None else config.gradient_monitor.model_dump()

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        if config.get("strategy.kind") == "parameter_server":
            why = "Workers of parameter servers take their steps each at its own pace, so no step has one gradient."
            return Forecast(Status.NOT_APPLICABLE, why)
        groups = f"by {', '.join(value['groups'])}" if value["groups"] else "by top-level layer"
        board = f" The figures are scalars for TensorBoard in {value['tensorboard']} too." * bool(value["tensorboard"])
        return Forecast(
            Status.APPLIED,
            f"The gradients of step 1, and of one step in every {value['every_steps']} from there, are looked at,"
            f" {groups}; the other steps run a train function that has nothing of it.{board}",
        )

    def apply(self, value: Any, context: Context) -> None:
        if context.config.get("strategy.kind") != "parameter_server":
            context.bridge.watch_gradients(context.model, value["every_steps"])

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        context.saved[_JOURNAL] = journal

    def verify(self, value: Any, context: Context) -> Outcome:
        if context.config.get("strategy.kind") == "parameter_server":
            return Outcome(Status.NOT_APPLICABLE, "Parameter servers have no gradient of a step.")
        unmatched = [each for each in self._patterns(value, context) if not each.paths]
        if unmatched and context.bridge.is_traced(context.model):
            fix = "; ".join(each.suggestion() for each in unmatched)
            names = ", ".join(each.pattern for each in unmatched)
            return Outcome(Status.NO_EFFECT, f"No layer matches {names}.", {}, fix)
        seen = context.saved.get(self.name)
        if isinstance(seen, Seen) and seen.samples:
            observed = dataclasses.asdict(seen)
            if seen.fault:
                why = f"No scalars for TensorBoard in {seen.tensorboard}: {seen.fault}"
                return Outcome(Status.NO_EFFECT, why, observed, "set gradient_monitor.tensorboard: a writable folder")
            board = f" {seen.scalars} scalars for TensorBoard are in {seen.tensorboard}." * bool(seen.tensorboard)
            return Outcome(Status.APPLIED, f"{seen.samples} steps were looked at so far.{board}", observed)
        if seen is None and context.bridge.is_traced(context.model):
            fix = "write model.fit(..., callbacks=tfvolta.build_callbacks(config))"
            return Outcome(Status.NO_EFFECT, "fit was given no callback that takes the figures.", {}, fix)
        return Outcome(Status.PENDING, "No step was looked at yet.")

    def undo(self, context: Context) -> bool:
        return bool(context.model is not None and context.bridge.watch_gradients(context.model, None))

    def _patterns(self, value: Any, context: Context) -> list[Pattern]:
        return patterns_of(value["groups"], context.bridge.layers(context.model)) if value["groups"] else []


def settle(context: Context) -> None:
    """Enters how the knob ended, after a step was looked at."""
    journal = context.saved.get(_JOURNAL)
    if journal is not None:
        journal.settle()
