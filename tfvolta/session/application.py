"""Applies one step of a plan to the live process, if it is not too late."""

from __future__ import annotations

from tfvolta.knobs.base import Context
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Closure
from tfvolta.plan import Step


def apply_step(step: Step, context: Context) -> Outcome:
    """Sets a step's value and reads it back; what came too late is not set, since it would look applied.

    Args:
        step: What to apply.
        context: The live process, or a recorded one.
    """
    if step.forecast.status is Status.NOT_APPLICABLE and not step.knob.asks_tensorflow:
        return Outcome(Status.NOT_APPLICABLE, step.forecast.message)
    closure = context.closed(step.knob.closes_at)
    if closure is not None:
        return _late(step, closure, context)
    step.knob.apply(step.value, context)
    return step.knob.verify(step.value, context)


def _late(step: Step, closure: Closure, context: Context) -> Outcome:
    """LATE, unless what is asked for is in force already, or there is nothing to set."""
    present = step.knob.verify(step.value, context)
    if present.status in (Status.APPLIED, Status.NOT_APPLICABLE):
        return present
    move_to = closure.move_to or step.knob.move_to
    return Outcome(Status.LATE, f"too late: {closure}. {move_to}", {"closed_by": closure.moment.name})
