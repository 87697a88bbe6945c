"""An optimiser in place of the script's, and an average of the weights."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.bridge.optimizer_records import OptimizerChoice, OptimizerState
from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.per_model import recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

# Class of each name by stack, and its package; a name that a stack does not have is missing there.
CLASSES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "keras3": {"lamb": ("Lamb", "keras"), "adamw": ("AdamW", "keras"), "sgdw": ("SGD", "keras")},
    "tf_keras": {"adamw": ("AdamW", "tf_keras"), "sgdw": ("SGD", "tf_keras")},
    "keras2": {
        "lamb": ("LAMB", "tensorflow_addons"),
        "novograd": ("NovoGrad", "tensorflow_addons"),
        "lazy_adam": ("LazyAdam", "tensorflow_addons"),
        "rectified_adam": ("RectifiedAdam", "tensorflow_addons"),
        "sgdw": ("SGDW", "tensorflow_addons"),
        "adamw": ("AdamW", "keras"),
    },
}
_INSTEAD = {
    "lamb": "take the keras3 stack (Keras's Lamb) or keras2 (TensorFlow Addons' LAMB)",
    "novograd": "take the keras2 stack, or optimizer.name: lamb on keras3, which also normalises layer by layer",
    "lazy_adam": "take the keras2 stack, or leave optimizer out: Adam updates whole tables instead of the rows used",
    "rectified_adam": "take the keras2 stack, or Adam with learning_rate.warmup_epochs, which rectification replaces",
}
_NO_DECAY = ("lazy_adam",)
_KEYS = ("name", "learning_rate", "weight_decay", "average_weights", "average_decay", "average_every_steps")


class Optimizer(Knob):
    """Trains with another optimizer than the script compiled with, or keeps an average of the weights.

    Binds: when the train step is traced. A loss-scale wrapper stays around the new optimizer; an optimizer that has
    taken steps is not replaced, since its state would be lost.
    """

    name = "optimizer"
    keys = tuple(f"optimizer.{key}" for key in _KEYS)
    phase = Phase.COMPILE
    closes_at = Moment.NEVER
    techniques = ()
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        if config.optimizer is None:
            return None
        given = config.optimizer.model_dump(exclude_none=True)
        return given or None

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del environ
        return [*_missing_class(value, facts.stack), *_odd_settings(value), *_missing_average(value, facts.stack)]

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del config
        parts = []
        name = value.get("name")
        if name is not None:
            cls, package = CLASSES.get(facts.stack, {}).get(name, (name, "no package"))
            parts.append(f"The model trains with {package}'s {cls}{_rates(value)}.")
            if name == "lamb" and package == "keras" and value.get("weight_decay"):
                parts.append("Keras's Lamb decays weights outside of the layer's trust ratio; the paper's inside.")
        elif "learning_rate" in value or "weight_decay" in value:
            parts.append(f"The script's optimizer is made again{_rates(value)}.")
        if "average_weights" in value:
            parts.append(_average_sentence(value))
        return Forecast(Status.APPLIED, " ".join(parts))

    def apply(self, value: Any, context: Context) -> None:
        state = context.bridge.optimizer_state(context.model)
        if state is None or state.iterations or recall(context, self.name):
            return
        context.bridge.choose_optimizer(context.model, _choice(value))
        remember(context, self.name, True)

    def before_first_step(self, value: Any, context: Context, journal: Any) -> None:
        """Makes what several replicas cannot make while they are traced."""
        context.bridge.prepare_optimizer(context.model)

    def verify(self, value: Any, context: Context) -> Outcome:
        state = context.bridge.optimizer_state(context.model)
        if state is None:
            return Outcome(Status.PENDING, "The model is not compiled with an optimizer yet.")
        observed = {
            "class": state.class_name,
            "package": state.package,
            "family": state.family,
            "iterations": state.iterations,
            "slots": state.slots,
            "average": state.average,
        }
        wrong = _wrong(value, state, context.stack)
        if wrong:
            steps = f" The optimizer had taken {state.iterations} steps, so it was not replaced." * bool(
                state.iterations and not recall(context, self.name)
            )
            return Outcome(Status.NO_EFFECT, f"{wrong}{steps}", observed)
        if not context.bridge.is_traced(context.model) and not getattr(context.model, "run_eagerly", False):
            return Outcome(Status.PENDING, f"{state.class_name} is set; the first step shows that it trains.", observed)
        if state.slots == 0 and state.class_name not in ("SGD", "SGDW"):
            return Outcome(Status.NO_EFFECT, f"{state.class_name} made no variables: it is not what trains.", observed)
        average = f", with {state.average} average of the weights" if state.average else ""
        message = f"{state.class_name} of {state.package} ({state.family} family) trains{average}."
        return Outcome(Status.APPLIED, message, observed)


def _choice(value: Mapping[str, Any]) -> OptimizerChoice:
    return OptimizerChoice(
        name=value.get("name"),
        learning_rate=value.get("learning_rate"),
        weight_decay=value.get("weight_decay"),
        average=value.get("average_weights"),
        average_decay=value.get("average_decay", OptimizerChoice.average_decay),
        average_every_steps=value.get("average_every_steps", OptimizerChoice.average_every_steps),
    )


def _wrong(value: Mapping[str, Any], state: OptimizerState, stack: str) -> str:
    """What the optimiser is not; empty where it is what was asked for."""
    name = value.get("name")
    if name is not None and (state.class_name, state.package) != CLASSES[stack][name]:
        return f"The model trains with {state.class_name} of {state.package}, not with {CLASSES[stack][name][0]}."
    average = value.get("average_weights")
    if average is not None and state.average != average:
        return f"The optimizer keeps {state.average or 'no'} average of the weights."
    return ""


def _rates(value: Mapping[str, Any]) -> str:
    rate = f"learning rate {value['learning_rate']:g}" if "learning_rate" in value else "the script's learning rate"
    decay = f", weight decay {value['weight_decay']:g}" if "weight_decay" in value else ""
    return f" with {rate}{decay}"


def _average_sentence(value: Mapping[str, Any]) -> str:
    if value["average_weights"] == "exponential":
        decay = value.get("average_decay", OptimizerChoice.average_decay)
        return f"A moving average of the weights (decay {decay:g}) replaces them when fit ends."
    every = value.get("average_every_steps", OptimizerChoice.average_every_steps)
    return f"The mean of the weights of every {every}th step replaces them when fit ends."


def _missing_class(value: Mapping[str, Any], stack: str) -> list[Problem]:
    name = value.get("name")
    present = CLASSES.get(stack, {})
    if name is None or name in present:
        return []
    return [
        Problem(
            where="optimizer.name",
            expected=f"an optimizer that the {stack} stack has: {', '.join(sorted(present))}",
            received=name,
            why=f"no kept library has {name} for this Keras; TensorFlow Addons ended and needs TensorFlow 2.15",
            fix=_INSTEAD.get(name, "take the keras2 stack"),
        )
    ]


def _odd_settings(value: Mapping[str, Any]) -> list[Problem]:
    found = []
    if value.get("name") in _NO_DECAY and value.get("weight_decay"):
        found.append(
            Problem(
                where="optimizer.weight_decay",
                expected=f"no weight decay with {value['name']}",
                received=f"{value['weight_decay']:g}",
                why="LazyAdam has none",
                fix="remove weight_decay, or take optimizer.name: adamw",
            )
        )
    average = value.get("average_weights")
    for key, kind in (("average_decay", "exponential"), ("average_every_steps", "stochastic")):
        if key in value and average != kind:
            found.append(
                Problem(
                    where=f"optimizer.{key}",
                    expected=f"{key} with average_weights: {kind}",
                    received=f"average_weights: {average}",
                    why=f"only the {kind} average has it",
                    fix=f"set average_weights: {kind}, or remove {key}",
                )
            )
    return found


def _missing_average(value: Mapping[str, Any], stack: str) -> list[Problem]:
    average, name = value.get("average_weights"), value.get("name")
    if average != "stochastic":
        return []
    if stack != "keras2":
        why = "only TensorFlow Addons keeps an equally weighted average, and it needs TensorFlow 2.15"
    elif name is not None and CLASSES["keras2"][name][1] == "keras":
        why = f"TensorFlow Addons wraps optimizers of Keras's legacy family only, and {name} is of the new one"
    else:
        return []
    return [
        Problem(
            where="optimizer.average_weights",
            expected="exponential, which this optimizer keeps itself",
            received="stochastic",
            why=why,
            fix="set average_weights: exponential, or take the keras2 stack with lamb, novograd or sgdw",
        )
    ]
