"""Per-model XLA compilation of the train step."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit_decision import JitDecision, decide_jit, planned_situation
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


def step_is_compiled(context: Context) -> Optional[bool]:
    """Whether XLA compiles the traced train step; None before a trace.

    Keras 2 optimizers compile their own update on a GPU, so that a function in the graph carries the mark without
    the step being compiled: the graph and the model must agree.
    """
    graph = context.bridge.train_graph(context.model) if context.model is not None else None
    if graph is None:
        return None
    return bool(graph.must_compile and context.bridge.jit(context.model).effective)


def replicas_of(context: Context) -> int:
    """Replicas that train the model: those of the strategy in whose scope it was made."""
    strategy = getattr(context.model, "distribute_strategy", None) or context.tensorflow.distribute.get_strategy()
    return int(strategy.num_replicas_in_sync)


class Jit(Knob):
    """Compiles the whole train step with XLA (``model``), does not (``off``), or decides for this model (``auto``).

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = "jit"
    keys = ("xla.jit",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("K5", "M9", "C12")

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("xla.jit")
        return None if asked == "clustering" else asked

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        decision = decide_jit(value, planned_situation(facts, config))
        if value == "auto" and decision.on:
            return Forecast(
                Status.APPLIED,
                f"The train step is compiled, unless the model has a layer that XLA does not serve. {decision.reason}",
            )
        return Forecast(Status.APPLIED, f"The train step is {'' if decision.on else 'not '}compiled. {decision.reason}")

    def decide(self, value: Any, context: Context) -> JitDecision:
        """The decision for the model in the context."""
        planned = planned_situation(context.facts, context.config)
        return decide_jit(
            value,
            dataclasses.replace(
                planned,
                replicas=replicas_of(context),
                obstacles=tuple(context.bridge.xla_obstacles(context.model)) if planned.gpus else (),
            ),
        )

    def apply(self, value: Any, context: Context) -> None:
        former = context.bridge.jit(context.model).effective
        decision = self.decide(value, context)
        saved = context.saved.get(self.name) or {}
        if saved.get("model") is not context.model:
            saved = {"model": context.model, "former": former}
        context.saved[self.name] = {**saved, "decision": decision}
        context.bridge.set_jit(context.model, decision.on)

    def verify(self, value: Any, context: Context) -> Outcome:
        saved = context.saved.get(self.name)
        decision = saved["decision"] if saved else self.decide(value, context)
        state = context.bridge.jit(context.model)
        compiled = step_is_compiled(context)
        observed = {"wanted": decision.on, "requested": _plain(state.requested), "compiled": compiled}
        if compiled is None:
            return self._before_a_trace(decision, context, observed)
        if compiled == decision.on:
            return Outcome(
                Status.APPLIED,
                f"The traced train step is {'' if compiled else 'not '}compiled by XLA. {decision.reason}",
                observed,
            )
        why = state.reason or "; ".join(context.bridge.xla_obstacles(context.model)) or "something set it after tfvolta"
        return Outcome(
            Status.NO_EFFECT, f"The traced train step is {'' if compiled else 'not '}compiled by XLA: {why}.", observed
        )

    def _before_a_trace(self, decision: JitDecision, context: Context, observed: dict[str, Any]) -> Outcome:
        if getattr(context.model, "run_eagerly", False):
            if decision.on:
                return Outcome(
                    Status.NO_EFFECT,
                    "The model runs eagerly, so there is no step to compile; take run_eagerly=True out.",
                    observed,
                )
            return Outcome(Status.APPLIED, "The model runs eagerly and is not compiled.", observed)
        return Outcome(Status.PENDING, f"Set; the first traced step shows it. {decision.reason}", observed)

    def undo(self, context: Context) -> bool:
        saved = context.saved.pop(self.name, None)
        if saved is None:
            return False
        context.bridge.set_jit(saved["model"], bool(saved["former"]))
        return True


def _plain(requested: Any) -> Any:
    return requested if requested is None or isinstance(requested, (bool, str)) else str(requested)
