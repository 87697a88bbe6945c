"""Learning rate for several replicas: what it is scaled to, and from where it rises."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit import replicas_of
from tfvolta.knobs.per_model import recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.peers import peers_of
from tfvolta.phase import Moment, Phase


@dataclasses.dataclass(frozen=True)
class Ramp:
    """How the learning rate of a model rises.

    Attributes:
        start: Value at the beginning of the first epoch.
        target: Value after the warm-up.
        epochs: Length of the warm-up; 0 for none.
        replicas: Number that the factor was made from.
        schedule: Class of the optimiser's schedule, which then holds the scaled rates; empty where there is none.
        note: What the reader should know; empty for nothing.
        fault: Why nothing could be set; empty where it was.
    """

    start: float
    target: float
    epochs: float
    replicas: int
    schedule: str = ""
    note: str = ""
    fault: str = ""

    def at(self, epochs_done: float) -> float:
        """The learning rate after so many epochs, fractions included."""
        if self.epochs == 0 or epochs_done >= self.epochs:
            return self.target
        return self.start + (self.target - self.start) * max(0.0, epochs_done) / self.epochs


class LearningRate(Knob):
    """Scales the learning rate to the number of replicas, and lets it rise to that value in the first epochs.

    Binds: to the next step; the value is a variable that the step reads. A schedule is made again with its rates
    multiplied, when the train step is traced.

    Source: Goyal et al., Accurate, Large Minibatch SGD, 2017 (linear scaling and gradual warm-up).
    """

    name = "learning_rate"
    keys = ("learning_rate.target", "learning_rate.scaling", "learning_rate.warmup_epochs")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("C6",)
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        return None if config.learning_rate is None else config.learning_rate.model_dump(exclude_none=True)

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        if "target" not in value or value["scaling"] == "none":
            return []
        return [
            Problem(
                where="learning_rate.target",
                expected="a target, or a scaling that makes one",
                received=f"target: {value['target']:g} and scaling: {value['scaling']}",
                why="the target is the value after scaling, so the factor would not be used",
                fix="remove scaling, or remove target",
            )
        ]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del facts, config
        if "target" in value:
            message = f"The learning rate is {value['target']:g}"
        elif value["scaling"] == "none":
            message = "The learning rate stays what the script compiles with"
        else:
            factor = "the number of replicas" if value["scaling"] == "linear" else "its square root for the replicas"
            message = f"The learning rate that the script compiles with is multiplied with {factor}"
        if value["warmup_epochs"]:
            message += f", reached after {value['warmup_epochs']:g} epochs"
        return Forecast(Status.APPLIED, f"{message}.")

    def apply(self, value: Any, context: Context) -> None:
        if recall(context, self.name) is not None:
            return  # a later fit goes on with what callbacks have made of it
        ramp = _decide(value, context)
        remember(context, self.name, ramp)
        if ramp is not None and not ramp.fault and not ramp.schedule:
            context.bridge.set_learning_rate(context.model, ramp.at(0.0))

    def verify(self, value: Any, context: Context) -> Outcome:
        ramp: Optional[Ramp] = recall(context, self.name)
        state = context.bridge.learning_rate(context.model)
        if ramp is None or state is None:
            return Outcome(Status.NO_EFFECT, "The model has no optimizer whose learning rate could be set.")
        observed = {
            "replicas": ramp.replicas,
            "start": ramp.start,
            "target": ramp.target,
            "warmup_epochs": ramp.epochs,
            "now": state.value,
            "schedule": state.schedule,
        }
        if ramp.fault:
            return Outcome(Status.NO_EFFECT, ramp.fault, observed)
        if ramp.schedule:
            message = f"All rates of {ramp.schedule} are multiplied with {ramp.target:g}."
            return Outcome(Status.APPLIED, f"{message} {ramp.note}".strip(), observed)
        low, high = sorted((ramp.start, ramp.target))
        if state.value is None or not low * (1 - 1e-6) <= state.value <= high * (1 + 1e-6):
            return Outcome(
                Status.NO_EFFECT,
                f"The learning rate is {state.value}, outside of {low:g} to {high:g}: something else sets it.",
                observed,
            )
        rise = f", on its way from {ramp.start:g} to {ramp.target:g}" if ramp.epochs else ""
        return Outcome(Status.APPLIED, f"The learning rate is {state.value:g}{rise}. {ramp.note}".strip(), observed)


def ramp_of(context: Context) -> Optional[Ramp]:
    """How the learning rate of the context's model rises; None before the knob was applied to it."""
    ramp: Optional[Ramp] = recall(context, LearningRate.name)
    return ramp


def _decide(value: Mapping[str, Any], context: Context) -> Optional[Ramp]:
    state = context.bridge.learning_rate(context.model)
    optimizer = context.bridge.optimizer_state(context.model)
    if state is None or optimizer is None:
        return None
    replicas = _replicas(context)
    factor = {"none": 1.0, "linear": float(replicas), "square_root": math.sqrt(replicas)}[value["scaling"]]
    epochs = float(value["warmup_epochs"])
    if state.value is None:
        return _with_schedule(value, context, state.schedule, factor, replicas)
    if "target" in value:
        target, note = float(value["target"]), ""
        start = state.value if optimizer.iterations == 0 and state.value < target else target / replicas
    elif optimizer.iterations:
        target, start = state.value, state.value / factor
        note = (
            f"The optimizer has taken {optimizer.iterations} steps, so its learning rate of {state.value:g} is taken "
            "for the target; learning_rate.target says otherwise."
        )
    else:
        target, start, note = state.value * factor, state.value, ""
    if start >= target:
        start = 0.0
    return Ramp(start if epochs else target, target, epochs, replicas, note=note)


def _with_schedule(value: Mapping[str, Any], context: Context, schedule: str, factor: float, replicas: int) -> Ramp:
    fault = ""
    if value["warmup_epochs"]:
        fault = (
            f"The learning rate comes from {schedule}, so there is no value to raise. Write the warm-up into it "
            "(keras.optimizers.schedules.CosineDecay has warmup_steps), or give compile a number."
        )
    elif "target" in value:
        fault = f"The learning rate comes from {schedule}, so it has no single target; remove learning_rate.target."
    elif factor != 1.0 and not context.bridge.scale_schedule(context.model, factor):
        fault = f"The rates of {schedule} cannot be multiplied from outside; multiply them by {factor:g} in the script."
    return Ramp(factor, factor, 0.0, replicas, schedule=schedule, fault=fault)


def _replicas(context: Context) -> int:
    """Replicas of the model's strategy, or the ranks of Horovod, which has no strategy in TensorFlow."""
    return peers_of(context.model).size if context.config.get("strategy.kind") == "horovod" else replicas_of(context)
