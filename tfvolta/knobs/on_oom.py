"""What happens when memory runs out in a train step."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

REPORT, SPLIT, OFF = "report", "split", "off"
_FIX = "write model.fit(..., callbacks=tfvolta.build_callbacks(config))"
_JOURNAL = "out of memory journal"
_REMOTE = "parameter_server"
_ONE_REPLICA = ("default", "one_device")


@dataclasses.dataclass
class Guarded:
    """What the running fit's callback has done; it keeps this up to date under the knob's name in ``Context.saved``.

    Attributes:
        calls: Calls of the train function that were guarded.
        early: Variables that a step writes before all is computed, kept before each call; None before a trace.
        updates: Updates that the guarded steps have counted; None where nothing counts them.
        failures: How often memory ran out.
        split_batches: Batches that were trained in parts.
        parts: In how many the last one was.
        refused: Why the guard does not work for this model; empty where it does.
    """

    calls: int = 0
    early: Optional[tuple[str, ...]] = None
    updates: Optional[int] = None
    failures: int = 0
    split_batches: int = 0
    parts: int = 0
    refused: str = ""


class OnOom(Knob):
    """Says where and why memory ran out, keeps the state of the last good batch, and may train the batch in parts.

    Binds: when the train step is traced, whose writes wait for all that is computed.
    """

    name = "on_oom"
    keys = ("memory.on_oom",)
    phase = Phase.RUNNING
    closes_at = Moment.NEVER
    techniques = ("M2", "C9")
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("memory.on_oom")
        if asked is None:
            return None
        return {
            "on_oom": asked,
            "kind": config.get("strategy.kind") or "default",
            "steps_per_execution": config.get("fit.steps_per_execution") or 1,
            "reduce_every": config.get("communication.reduce_every") or 1,
        }

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        return _against_splitting(value) if value["on_oom"] == SPLIT else []

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        if value["on_oom"] == OFF:
            return Forecast(Status.APPLIED, "TensorFlow's error is raised as it comes.")
        if value["kind"] == _REMOTE:
            return Forecast(Status.NOT_APPLICABLE, "Parameter servers update by themselves, without a common step.")
        if value["on_oom"] == SPLIT:
            return Forecast(
                Status.APPLIED,
                "A batch for which memory runs out is trained in parts of one size whose gradients are averaged, and "
                "so is every later batch that is as large; batch normalisation sees the parts.",
            )
        return Forecast(
            Status.APPLIED,
            "Where memory runs out the error says epoch, batch, shapes and remedies, and the state is that after the "
            "last good batch.",
        )

    def apply(self, value: Any, context: Context) -> None:
        """The callback carries it."""

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        context.saved[_JOURNAL] = journal

    def verify(self, value: Any, context: Context) -> Outcome:
        if value["on_oom"] == OFF:
            return Outcome(Status.APPLIED, "TensorFlow's error is raised as it comes.")
        guarded = context.saved.get(self.name)
        if guarded is None or not (guarded.calls or guarded.refused):
            # A model that an earlier fit has traced is given to this one before its first batch.
            beginning = bool(getattr(context, "in_fit", False))
            if guarded is None and not beginning and context.bridge.is_traced(context.model):
                return Outcome(Status.NO_EFFECT, "fit was given no callback that guards its steps.", {}, _FIX)
            return Outcome(Status.PENDING, "No step was guarded yet.")
        observed = dataclasses.asdict(guarded)
        if guarded.refused:
            return Outcome(Status.NOT_APPLICABLE, guarded.refused, observed)
        if guarded.updates is None:
            return Outcome(
                Status.APPLIED, "Each step is guarded; what it has changed cannot be counted in this mode.", observed
            )
        if guarded.updates < 1:
            return Outcome(Status.NO_EFFECT, "The step was called and no update passed the guard.", observed, _FIX)
        kept = len(guarded.early or ())
        also = f", and {kept} variables that it writes at once are kept" if kept else ""
        return Outcome(Status.APPLIED, f"The step writes when all is computed{also}.", observed)


def _against_splitting(value: Mapping[str, Any]) -> list[Problem]:
    found = []
    if value["kind"] not in _ONE_REPLICA:
        found.append(
            Problem(
                where="memory.on_oom: split",
                expected="one replica in one process",
                received=f"strategy.kind: {value['kind']}",
                why="the replica that runs out of memory leaves the others inside a reduction, and which of them has "
                "taken its batch cannot be told",
                fix="set memory.on_oom: report, and fit.batch_size smaller with communication.reduce_every",
            )
        )
    for key, name in (("steps_per_execution", "fit"), ("reduce_every", "communication")):
        if value[key] > 1:
            why = "its call has taken several batches, which are lost with it"
            if key == "reduce_every":
                why = "gradients of the batches before wait in the window that the parts would use"
            found.append(
                Problem(
                    where="memory.on_oom: split",
                    expected=f"{name}.{key}: 1",
                    received=f"{name}.{key}: {value[key]}",
                    why=why,
                    fix=f"leave {name}.{key} out, or set memory.on_oom: report",
                )
            )
    return found


def settle(context: Context) -> None:
    """Enters how the knob ended, after something happened."""
    journal = context.saved.get(_JOURNAL)
    if journal is not None:
        journal.settle()
