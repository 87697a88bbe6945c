"""Trying a train step with XLA before it runs, and what follows from it."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence, cast

from absl import logging

from tfvolta.bridge.base import CompileProbe, FitData, XlaFault, XlaTrial
from tfvolta.knobs.base import Context, Journal
from tfvolta.knobs.jit_decision import JitDecision
from tfvolta.knobs.per_model import recall, remember

NAME = "jit"
DATA = "the data"  # where a fault lies that the types of the data tell
LIMIT = "limit"
_MOST = 6  # operations named in a line; more say no more


@dataclasses.dataclass(frozen=True)
class JitMemory:
    """What the knob remembers of a model.

    Attributes:
        former: Whether its step was compiled before tfvolta came.
        decision: What was decided last.
        trial: What trying its step showed last; None before.
        layers: Paths and classes of the layers that were tried.
    """

    former: bool
    decision: JitDecision
    trial: Optional[XlaTrial] = None
    layers: tuple[tuple[str, str], ...] = ()

    def decision_of_a_trial(self, value: Any, context: Context) -> Optional[JitDecision]:
        """The decision that a failed trial led to, as long as the model has the layers that failed.

        None where there was none, or ``model`` under a strict config asks to be refused anew.
        """
        if self.trial is None or not self.trial.faults or self.layers != _layers(context):
            return None
        return None if value == "off" or (value == "model" and context.config.run.strict) else self.decision

    def observed(self) -> dict[str, Any]:
        """The trial as JSON values."""
        if self.trial is None:
            return {}
        return {
            "trial": "lowered" if self.trial.lowered else "kernels looked up",
            "trial_seconds": round(self.trial.seconds, 3),
            "compile_seconds_in_another_process": self.trial.compile_seconds,
            "refused_by_xla": [_operation(fault) + _owner(fault) for fault in self.trial.faults],
        }


def try_step(context: Context, model: Any, iterator: Any, journal: Journal) -> None:
    """Lowers the step for the data that it is about to get; where XLA refuses it, training goes on without XLA.

    Weights, optimizer, metrics and the data's position stay as they are, and training uses the trace.

    Raises:
        NoEffectError: XLA cannot compile the step, ``xla.jit: model`` asks for it, and the config is strict.
    """
    context.model = model
    trial = context.bridge.try_xla(model, iterator)
    known = cast(JitMemory, recall(context, NAME))
    limit = context.config.get("xla.compile_limit_seconds")
    if limit and not trial.faults:
        trial = _within(limit, trial, context.bridge.probe_compilation(model, iterator, limit), journal)
    if not trial.faults:
        remember(context, NAME, dataclasses.replace(known, trial=trial))
        text = remainder(context.bridge.fit_data(model))
        if text:
            journal.warned(text)
        return
    decision = JitDecision(False, f"XLA cannot compile {refused(trial.faults)}.", _fix(trial.faults))
    remember(context, NAME, dataclasses.replace(known, decision=decision, trial=trial, layers=_layers(context)))
    context.bridge.set_jit(model, False)
    if context.config.get("xla.jit") == "auto":  # otherwise it is an error or a warning
        logging.warning("tfvolta: not compiled: %s", decision.reason)
    journal.settle()


def _within(limit: float, trial: XlaTrial, probe: CompileProbe, journal: Journal) -> XlaTrial:
    """The trial with what compiling in another process showed."""
    if probe.exceeded:
        text = f"the step in {limit:g} s (xla.compile_limit_seconds): another process was ended then"
        return dataclasses.replace(trial, faults=(XlaFault(text, place=LIMIT),))
    if probe.reason:
        journal.warned(f"xla.compile_limit_seconds: {limit:g} is not kept: {probe.reason}")
    return dataclasses.replace(trial, compile_seconds=probe.seconds)


def refused(faults: Sequence[XlaFault]) -> str:
    """What XLA refuses and who owns it, in one line: ``AsString, StringToNumber in layer text (Text, train.py:12)``."""
    owners: dict[str, list[str]] = {}
    for fault in faults[:_MOST]:
        operations = owners.setdefault(_owner(fault), [])
        if _operation(fault) not in operations:
            operations.append(_operation(fault))
    rest = f" and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    return "; ".join(", ".join(operations) + owner for owner, operations in owners.items()) + rest


def remainder(data: Optional[FitData]) -> str:
    """What a smaller last batch costs a compiled step; empty where there is none."""
    if data is None or not data.remainder or (data.rows or 0) < (data.batch or 0):
        return ""  # fewer rows than a batch are one shape too
    return (
        f"{data.rows} rows, batch {data.batch} leaves a remainder of {data.remainder}: one extra compilation "
        "(under tfvolta run xla.remainder: drop leaves it out and pad fills it up; elsewhere "
        "tfvolta.data.static_batches(dataset) or padded_batches(dataset, model))"
    )


def _operation(fault: XlaFault) -> str:
    return fault.operation or fault.reason


def _owner(fault: XlaFault) -> str:
    if fault.place == LIMIT:
        return ""
    if not fault.layer:
        return f" in the train step{f' ({fault.place})' if fault.place else ''}"
    return f" in layer {fault.layer} ({', '.join(part for part in (fault.class_name, fault.place) if part)})"


def _fix(faults: Sequence[XlaFault]) -> str:
    layers = list(dict.fromkeys(fault.layer for fault in faults if fault.layer))
    places = {fault.place for fault in faults}
    if LIMIT in places:
        return "set xla.jit: auto, which trains without XLA then, or a larger xla.compile_limit_seconds"
    if DATA in places:
        out = "prepare the data: strings as integers (StringLookup), ragged and sparse rows as dense ones (to_tensor)"
    elif layers:
        out = f"take {', '.join(layers)} out of the model (what prepares data belongs into the data set)"
    else:
        out = "take these operations out of the train step"
    return f"set xla.jit: auto, which trains without XLA where it must, or {out}"


def _layers(context: Context) -> tuple[tuple[str, str], ...]:
    return tuple((path, type(layer).__name__) for path, layer in context.bridge.layers(context.model))
