"""Holding a run to the throughput and the loss of an earlier one."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.errors import EvidenceError, Problem
from tfvolta.history.baseline import AUTO
from tfvolta.history.entries import find_entry
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_JOURNAL = "guard journal"
_NO_STEP = "Workers of parameter servers take their steps each at its own pace: there is no step to time."


@dataclasses.dataclass
class Held:
    """What the running fit's callback holds it to; it keeps this under the knob's name in ``Context.saved``.

    Attributes:
        baseline: Id of the earlier run; empty where there is none.
        why_not: Why it is held to nothing; empty where it is held to something.
        looks: How often it has looked.
        said: What it has said.
    """

    baseline: str = ""
    why_not: str = ""
    looks: int = 0
    said: tuple[str, ...] = ()


class Guard(Knob):
    """Compares throughput and loss with an earlier run of the script; warns, stops or goes back where they leave it.

    Binds: while fit runs; a callback times windows of steps, and looks at the loss at the end of an epoch.
    """

    name = "guard"
    keys = ("guard.baseline", "guard.throughput_floor", "guard.loss_band", "guard.action", "guard.every_steps")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P8",)

    def value(self, config: Any) -> Optional[Any]:
        return None if config.guard is None else {**config.guard.model_dump(), "directory": config.run.directory}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if value["throughput_floor"] is None and value["loss_band"] is None:
            why = "without one of these keys nothing is compared"
            return [Problem("guard", "throughput_floor or loss_band", "neither", why, "set one, or remove guard")]
        if value["baseline"] == AUTO:
            return []
        try:
            find_entry(value["baseline"], value["directory"])
        except EvidenceError as error:
            found = error.problems[0] if error.problems else None
            fix = found.fix if found else ""
            expected = f"a run in {value['directory']}, or auto"
            return [Problem("guard.baseline", expected, value["baseline"], error.summary, fix)]
        return []

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        if config.get("strategy.kind") == "parameter_server":
            return Forecast(Status.NOT_APPLICABLE, _NO_STEP)
        return Forecast(
            Status.APPLIED, describe(value), "an earlier run of the script with the same data, batch and seed"
        )

    def apply(self, value: Any, context: Context) -> None:
        """The callback does all."""

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        context.saved[_JOURNAL] = journal

    def verify(self, value: Any, context: Context) -> Outcome:
        if context.config.get("strategy.kind") == "parameter_server":
            return Outcome(Status.NOT_APPLICABLE, _NO_STEP)
        held = context.saved.get(self.name)
        if held is None and context.bridge.is_traced(context.model):
            fix = "write model.fit(..., callbacks=tfvolta.build_callbacks(config))"
            return Outcome(Status.NO_EFFECT, "fit was given no callback that compares.", {}, fix)
        if held is None:
            return Outcome(Status.PENDING, "Nobody has compared yet.")
        observed = dataclasses.asdict(held)
        if held.why_not:
            return Outcome(Status.NOT_APPLICABLE, f"Held to nothing: {held.why_not}.", observed)
        said = f" {'; '.join(held.said)}." if held.said else ""
        return Outcome(Status.APPLIED, f"Held to {held.baseline}. {describe(value)}{said}", observed)

    def undo(self, context: Context) -> bool:
        context.saved.pop(self.name, None)
        return True


def describe(value: Any) -> str:
    """What is compared and what then, in a sentence."""
    words = []
    if value["throughput_floor"] is not None:
        every = f"in six windows of {value['every_steps']} steps"
        words.append(f"throughput {every} at {100 * value['throughput_floor']:g} % of the earlier run's or more")
    if value["loss_band"] is not None:
        words.append(f"the loss of an epoch within {100 * value['loss_band']:g} % of the earlier run's")
    then = {
        "report": "it is reported",
        "stop": "fit ends",
        "rollback": "fit ends and the earlier config file is restored",
    }
    return f"{' and '.join(words)}; where not, {then[value['action']]}.".capitalize()


def settle(context: Context) -> None:
    """Enters how the knob ended, after the callback has looked."""
    journal = context.saved.get(_JOURNAL)
    if journal is not None:
        journal.settle()
