"""What is done when training goes wrong numerically."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

_JOURNAL = "alarms journal"
_NO_STEP = "Workers of parameter servers take their steps each at its own pace: there is no step to look into."


@dataclasses.dataclass
class Looks:
    """What the running fit's callback has done; it keeps this under the knob's name in ``Context.saved``.

    Attributes:
        looks: How often it has looked.
        alarms: What it has said.
    """

    looks: int = 0
    alarms: tuple[str, ...] = ()


class Alarms(Knob):
    """Looks whether the loss scale is too low, too many steps in a row are skipped, or the loss is not finite.

    Binds: while fit runs; a callback looks between two batches, which waits for the device.
    """

    name = "alarms"
    keys = (
        "alarms.nan_loss",
        "alarms.min_loss_scale",
        "alarms.max_skipped_in_row",
        "alarms.action",
        "alarms.every_steps",
    )
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("P2", "P3")

    def value(self, config: Any) -> Optional[Any]:
        if config.alarms is None:
            return None
        settings = config.mixed_precision
        scaled = settings is not None and settings.policy == "mixed_float16"
        floor = settings.loss_scale.lowest() if scaled and settings.loss_scale.fixed is None else None
        return {**config.alarms.model_dump(), "floor": floor}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        found = []
        if not any(value[key] is not None for key in ("nan_loss", "min_loss_scale", "max_skipped_in_row")):
            why = "without one of these keys nothing is looked at"
            found.append(Problem("", "an alarm", "none", why, "set alarms.nan_loss: stop, or remove alarms"))
        limit, floor = value["min_loss_scale"], value["floor"]
        if limit is not None and floor is not None and limit <= floor:
            found.append(
                Problem(
                    where="alarms.min_loss_scale",
                    expected=f"a limit above the floor of the loss scale, {floor:g}",
                    received=f"{limit:g}",
                    why="the scale does not fall below its floor, so the alarm would never be raised",
                    fix=f"set min_loss_scale: {floor * 2:g}, or a lower mixed_precision.loss_scale.floor",
                )
            )
        return found

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        if config.get("strategy.kind") == "parameter_server":
            return Forecast(Status.NOT_APPLICABLE, _NO_STEP)
        return Forecast(Status.APPLIED, describe(value))

    def apply(self, value: Any, context: Context) -> None:
        if context.config.get("strategy.kind") != "parameter_server":
            context.bridge.count_steps(context.model)
            context.bridge.keep_batches(context.model, value["every_steps"])

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        context.saved[_JOURNAL] = journal

    def verify(self, value: Any, context: Context) -> Outcome:
        if context.config.get("strategy.kind") == "parameter_server":
            return Outcome(Status.NOT_APPLICABLE, _NO_STEP)
        bridge, traced = context.bridge, context.bridge.is_traced(context.model)
        needs_scale = value["min_loss_scale"] is not None or value["max_skipped_in_row"] is not None
        if needs_scale and traced and bridge.loss_scale(getattr(context.model, "optimizer", None)) is None:
            fix = "leave min_loss_scale and max_skipped_in_row out, or set mixed_precision.policy: mixed_float16"
            return Outcome(Status.NO_EFFECT, "Nothing scales the loss, so no step is ever skipped.", {}, fix)
        looks = context.saved.get(self.name)
        if looks is None and traced:
            fix = "write model.fit(..., callbacks=tfvolta.build_callbacks(config))"
            return Outcome(Status.NO_EFFECT, "fit was given no callback that looks.", {}, fix)
        if looks is None or not looks.looks:
            return Outcome(Status.PENDING, "Nobody has looked yet.")
        said = f" {len(looks.alarms)} alarms: {'; '.join(looks.alarms)}" if looks.alarms else " No alarm so far."
        return Outcome(Status.APPLIED, f"{describe(value)}{said}", dataclasses.asdict(looks))

    def undo(self, context: Context) -> bool:
        return bool(context.model is not None and context.bridge.keep_batches(context.model, None))


def describe(value: Any) -> str:
    """What is looked at and what then, in a sentence."""
    words = []
    if value["min_loss_scale"] is not None:
        words.append(f"{value['action']} at a loss scale below {value['min_loss_scale']:g}")
    if value["max_skipped_in_row"] is not None:
        words.append(f"{value['action']} after {value['max_skipped_in_row']} skipped steps in a row")
    if value["nan_loss"] is not None:
        words.append(f"{value['nan_loss']} at a loss that is not finite")
    every = "every step" if value["every_steps"] == 1 else f"every {value['every_steps']} steps"
    return f"Looked at {every}: {', '.join(words)}."


def settle(context: Context) -> None:
    """Enters how the knob ended, after somebody has looked."""
    journal = context.saved.get(_JOURNAL)
    if journal is not None:
        journal.settle()
