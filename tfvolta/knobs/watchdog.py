"""The watchdog: what happens when training makes no progress."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.errors import StallError
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.stall_watch import BEGUN, StallWatch, first_step_seconds
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

# Kinds in which one process can wait for another for ever.
MULTI_PROCESS = ("multi_worker_mirrored", "horovod", "parameter_server")
_DEFAULT = {"stall_seconds": 600.0, "first_step_seconds": first_step_seconds(600.0), "end": True}


class Watchdog(Knob):
    """Notices that no batch has ended for a while, writes the stacks of all threads and ends the process.

    On by itself where several processes train together.

    Binds: when fit begins.
    """

    name = "watchdog"
    keys = ("watchdog.stall_seconds", "watchdog.first_step_seconds", "watchdog.end")
    phase = Phase.RUNNING
    closes_at = Moment.NEVER

    def value(self, config: Any) -> Optional[Any]:
        stall_seconds = config.get("watchdog.stall_seconds")
        if stall_seconds is not None:
            first = config.get("watchdog.first_step_seconds") or first_step_seconds(stall_seconds)
            return {"stall_seconds": stall_seconds, "first_step_seconds": first, "end": config.get("watchdog.end")}
        return dict(_DEFAULT) if config.get("strategy.kind") in MULTI_PROCESS else None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts
        given = config.get("watchdog.stall_seconds") is not None
        why = "" if given else f" It is on by itself because strategy.kind: {config.get('strategy.kind')} can hang."
        return Forecast(Status.APPLIED, f"{describe(value)}{why}")

    def apply(self, value: Any, context: Context) -> None:
        if context.saved.get(self.name) is None:
            context.saved[self.name] = StallWatch(
                value["stall_seconds"], first_step=value["first_step_seconds"], ends=value["end"]
            )

    def verify(self, value: Any, context: Context) -> Outcome:
        watch = context.saved.get(self.name)
        begun = 0 if watch is None else int(watch.counts[BEGUN])
        running = watch is not None and watch.is_running
        observed = {"running": running, "steps": begun}
        if running and begun:
            return Outcome(Status.APPLIED, f"The watchdog runs and has seen step {begun}. {describe(value)}", observed)
        # A model that an earlier fit has traced is given to this one before its first batch.
        beginning = bool(getattr(context, "in_fit", False))
        if beginning or context.model is None or context.bridge.train_graph(context.model) is None:
            return Outcome(Status.PENDING, "No batch has begun yet.", observed)
        return Outcome(
            Status.NO_EFFECT,
            "The model trains and the watchdog sees no batch: fit was given tfvolta's callbacks without its own.",
            observed,
            fix="give fit all of tfvolta.build_callbacks(config), or tfvolta.callbacks.Watchdog()",
        )

    def undo(self, context: Context) -> bool:
        watch = context.saved.pop(self.name, None)
        if watch is not None:
            watch.stop()
        return watch is not None


def describe(value: Any) -> str:
    """What the watchdog does with a value, in a sentence or two."""
    seconds = value["stall_seconds"]
    then = "the stacks of all threads are written"
    if value["end"]:
        then += f" and the process ends with exit code {StallError.exit_code}"
    first = f"a first step, which traces and compiles, gets {value['first_step_seconds']:g} s"
    return f"After {seconds:g} s without a finished batch {then}; {first}."
