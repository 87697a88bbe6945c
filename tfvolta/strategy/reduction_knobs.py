"""How gradients travel and how often: ``communication.compression`` and ``communication.reduce_every`` as knobs."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.per_model import forget_all, recall, remember
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase
from tfvolta.strategy import registry
from tfvolta.strategy.reduction import verify_compression, verify_window

# Kinds whose workers are other processes, of which a plan made for this one may not know.
_PROCESSES = ("multi_worker_mirrored", "horovod")


class Compression(Knob):
    """Lets float32 gradients travel between replicas as float16, which halves the bytes.

    Binds: when the train step is traced. The change sits on the way to the optimizer; weights, update, clipping and
    weight decay stay float32.
    """

    name = "compression"
    keys = ("communication.compression",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("C5", "C6")
    changes_results = True

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if value == "none":
            return Forecast(Status.APPLIED, "Gradients travel in the dtype of their variables, which is the default.")
        if registry.unknown_kind(registry.kind_name(config), "strategy.kind") is not None:
            return Forecast(Status.NOT_APPLICABLE, "No strategy of that kind is registered.")
        if _is_alone(config, facts):
            return Forecast(Status.NO_EFFECT, "One replica: no gradient travels, so communication.compression is idle.")
        scaled = config.get("mixed_precision.policy") == "mixed_float16"
        small = (
            "; those of the scaled loss travel, so that small ones survive"
            if scaled
            else "; without a loss scale those below 6e-8 become zero and those above 32768 in the sum are limited"
        )
        return Forecast(Status.APPLIED, f"Gradients travel as float16, in half the bytes{small}.", _condition(config))

    def apply(self, value: Any, context: Context) -> None:
        compression = None if value == "none" else value
        _set(self.name, context, compression=compression)

    def verify(self, value: Any, context: Context) -> Outcome:
        if value == "none":
            return _default(context, "Gradients travel in the dtype of their variables.")
        return verify_compression(context.model, context.bridge)

    def undo(self, context: Context) -> bool:
        return _restore(self.name, context, "compression")


class ReduceEvery(Knob):
    """Adds up the gradients of several batches on each replica before one all-reduce and one update.

    Binds: when the train functions are made. There are two then, one that adds up and one that updates, and every batch
    calls one of them; a batch so many times as large gives the same update.
    """

    name = "reduce_every"
    keys = ("communication.reduce_every",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("C7", "C9")
    changes_results = True

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if value == 1:
            return Forecast(Status.APPLIED, "Each batch is one update, which is the default.")
        spared = "" if _is_alone(config, facts) else " and one all-reduce"
        steps = config.get("fit.steps_per_execution") or 1
        loose = steps > 1 and steps % value
        called = f" The {steps} batches of a call run one after the other from Python." if loose else ""
        return Forecast(
            Status.APPLIED,
            f"One update{spared} in {value} batches, with the average of their gradients: as with batches {value} times"
            f" as large. Learning-rate schedules count updates.{called}",
        )

    def apply(self, value: Any, context: Context) -> None:
        _set(self.name, context, every=value)
        counts = context.bridge.step_counts(context.model) if value > 1 else None
        context.saved[f"{self.name} began"] = None if counts is None else counts.attempted

    def verify(self, value: Any, context: Context) -> Outcome:
        if value == 1:
            return _default(context, "Each batch is one update.")
        return verify_window(context.model, context.bridge, value, context.saved.get(f"{self.name} began"))

    def undo(self, context: Context) -> bool:
        return _restore(self.name, context, "every")


def _is_alone(config: Any, facts: Any) -> bool:
    """Whether there is one replica, as far as a plan can know."""
    return registry.replicas(config, facts) == 1 and registry.kind_name(config) not in _PROCESSES


def _condition(config: Any) -> str:
    kind = registry.kind_name(config)
    return "there are two workers or more" if kind in _PROCESSES else ""


def _default(context: Context, message: str) -> Outcome:
    """How a setting ended that asks for what is the default."""
    state = context.bridge.reduction(context.model)
    if state is None or not (state.settings.compression or state.settings.every > 1):
        return Outcome(Status.APPLIED, message)
    return Outcome(Status.APPLIED, f"{message} Another setting changes the way of the gradients.")


def _set(name: str, context: Context, **settings: Any) -> None:
    """Gives the model a setting, and remembers what was there before."""
    former = context.bridge.reduction(context.model)
    if recall(context, name) is None:
        key = next(iter(settings))
        remember(context, name, (None if former is None else getattr(former.settings, key),))
    context.bridge.set_reduction(context.model, **settings)


def _restore(name: str, context: Context, key: str) -> bool:
    models = forget_all(context, name)
    for changed in models:
        former: Optional[Any] = changed.value[0]
        default: Mapping[str, Any] = {"every": 1, "compression": None}
        changed.bridge.set_reduction(changed.model, **{key: default[key] if former is None else former})
    return bool(models)


REDUCTION_KNOBS: tuple[Knob, ...] = (Compression(), ReduceEvery())
