"""Per-model XLA compilation of the train step."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.knobs.base import Context, Forecast, Journal, Knob
from tfvolta.knobs.jit_decision import HANGS, JitDecision, decide_jit, planned_situation, replica_fault
from tfvolta.knobs.jit_trial import JitMemory, try_step
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase


def step_is_compiled(context: Context) -> Optional[bool]:
    """Whether XLA compiles the traced train step, that of every replica; None before a trace.

    Keras 2 optimizers compile their own update on a GPU, so that a function in the graph carries the mark without
    the step being compiled: the graph and the model must agree.
    """
    graph = context.bridge.train_graph(context.model) if context.model is not None else None
    if graph is None:
        return None
    everywhere = set(replica_devices(context)) <= set(graph.compiled_on)
    return bool(graph.must_compile and everywhere and context.bridge.jit(context.model).effective)


def replicas_of(context: Context) -> int:
    """Replicas that train the model: those of the strategy in whose scope it was made."""
    return int(_strategy_of(context).num_replicas_in_sync)


def replica_devices(context: Context) -> list[str]:
    """The devices of the model's replicas in this process, such as ``GPU:0``; empty where there is one replica."""
    if replicas_of(context) < 2:
        return []
    return [str(name).rsplit("device:", 1)[-1] for name in _strategy_of(context).extended.worker_devices]


def _strategy_of(context: Context) -> Any:
    return getattr(context.model, "distribute_strategy", None) or context.tensorflow.distribute.get_strategy()


class Jit(Knob):
    """Compiles the whole train step with XLA (``model``), does not (``off``), or decides for this model (``auto``).

    Before the first step of a fit the traced step is lowered to XLA's form, where XLA refuses operations that it cannot
    compile: ``auto`` then trains without XLA, and ``model`` is refused under a strict config.

    Binds: when the train step is traced. The bridge makes Keras trace anew, so a callback is in time on every fit.
    """

    name = "jit"
    keys = ("xla.jit", "xla.compile_limit_seconds")
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
        replicas = replicas_of(context)
        obstacles = tuple(context.bridge.xla_obstacles(context.model)) if planned.gpus else ()
        return decide_jit(
            value,
            dataclasses.replace(
                planned,
                replicas=replicas,
                obstacles=obstacles,
                hangs=tuple(each for each in obstacles if HANGS in each),
                replica_fault=planned.replica_fault or replica_fault(replica_devices(context), replicas) or "",
            ),
        )

    def apply(self, value: Any, context: Context) -> None:
        known = recall(context, self.name)
        if known is None:
            known = JitMemory(bool(context.bridge.jit(context.model).effective), self.decide(value, context))
        decision = known.decision_of_a_trial(value, context) or self.decide(value, context)
        remember(context, self.name, dataclasses.replace(known, decision=decision))
        if not (decision.on and getattr(context.model, "run_eagerly", False)):  # which has no step to compile
            context.bridge.set_jit(context.model, decision.on)

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        """Tries the step with XLA before it runs, and says what will make XLA compile it twice."""
        known = recall(context, self.name)
        if known is not None and known.decision.on and context.bridge.jit(context.model).effective:
            model = context.model
            context.bridge.before_first_step(model, lambda iterator: try_step(context, model, iterator, journal))

    def verify(self, value: Any, context: Context) -> Outcome:
        known = recall(context, self.name)
        decision = self.decide(value, context) if known is None else known.decision
        state = context.bridge.jit(context.model)
        compiled = step_is_compiled(context)
        observed = {"wanted": decision.on, "requested": _plain(state.requested), "compiled": compiled}
        observed.update(_compiled_on(context))
        observed.update({} if known is None else known.observed())
        if decision.fix and value == "model":
            message = f"The train step is not compiled by XLA. {decision.reason}"
            return Outcome(Status.NO_EFFECT, message, observed, decision.fix)
        if compiled is None:
            return self._before_a_trace(decision, context, observed)
        if compiled == decision.on:
            said = "The traced train step is" if compiled else "As decided, the traced train step is not"
            return Outcome(Status.APPLIED, f"{said} compiled by XLA. {decision.reason}", observed)
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
        state = context.bridge.jit(context.model)
        if decision.on and not state.effective:
            return Outcome(Status.NO_EFFECT, f"The train step will not be compiled by XLA: {state.reason}.", observed)
        return Outcome(Status.PENDING, f"Set; the first traced step shows it. {decision.reason}", observed)

    def undo(self, context: Context) -> bool:
        models = forget_all(context, self.name)
        for changed in models:
            changed.bridge.set_jit(changed.model, changed.value.former)
        return bool(models)


def _compiled_on(context: Context) -> dict[str, Any]:
    """With several replicas, the devices whose step is compiled."""
    graph = context.bridge.train_graph(context.model) if replica_devices(context) else None
    return {} if graph is None else {"compiled_on": list(graph.compiled_on)}


def _plain(requested: Any) -> Any:
    return requested if requested is None or isinstance(requested, (bool, str)) else str(requested)
