"""The strategy and communication sections as knobs, so that they are planned, applied and verified like any other."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase
from tfvolta.strategy import registry
from tfvolta.strategy.factory import build_strategy, verify_strategy
from tfvolta.strategy.horovod_knobs import HOROVOD_KNOBS
from tfvolta.strategy.reduction_knobs import REDUCTION_KNOBS

# Keys of the communication section that are knobs of their own.
_OWN_KNOBS = ("compression", "reduce_every")


class StrategyKind(Knob):
    """Spreads training over devices with the ``tf.distribute`` strategy that the config names.

    Binds: when variables are created, so the model has to be made and compiled inside the strategy's scope.
    """

    name = "strategy"
    keys = ("strategy.kind", "strategy.devices", "strategy.logical_cpus", "strategy.shard_above_mb")
    phase = Phase.STRATEGY
    closes_at = Moment.NEVER
    move_to = "call tfvolta.build_strategy(config) and make and compile the model inside `with strategy.scope():`"
    techniques = ("C2", "C12")
    changes_results = True
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        return None if config.strategy is None else registry.kind_name(config)

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        """Rules need the whole config; ``tfvolta.conflicts`` asks the kind for them."""
        return []

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if registry.unknown_kind(value, "strategy.kind") is not None:
            return Forecast(Status.NOT_APPLICABLE, f"no strategy of kind {value} is registered")
        return registry.forecast(config, facts)

    def apply(self, value: Any, context: Context) -> None:
        context.strategy = build_strategy(context.config, context)

    def verify(self, value: Any, context: Context) -> Outcome:
        strategy = context.strategy
        if strategy is None:
            return Outcome(Status.LATE, f"the strategy was never built: {self.move_to}")
        if context.model is None:
            replicas = int(strategy.num_replicas_in_sync)
            observed = {"strategy": type(strategy).__name__, "replicas": replicas}
            return Outcome(Status.PENDING, "Built; the model's variables will show where it trains.", observed)
        data = context.bridge.fit_data(context.model)
        batch = None if data is None else data.batch
        return verify_strategy(context.config, context, context.model, batch)[self.name]


class Communication(Knob):
    """Reduces gradients with the implementation and packing that the config asks for.

    Binds: when the strategy is created; what the train step really does is seen in its traced graph.
    """

    name = "communication"
    keys = (
        "communication.implementation",
        "communication.num_packs",
        "communication.pack_mb",
        "communication.timeout_seconds",
    )
    phase = Phase.STRATEGY
    closes_at = Moment.NEVER
    move_to = "call tfvolta.build_strategy(config) and make and compile the model inside `with strategy.scope():`"
    techniques = ("C1", "C2")
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        if config.communication is not None:
            return config.communication.model_dump(exclude_none=True, exclude=set(_OWN_KNOBS))
        # Without a section the defaults of a strategy with several replicas are shown and verified all the same.
        return {} if registry.kind_name(config) not in ("default", "one_device") else None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        return registry.forecast_communication(config, facts)

    def apply(self, value: Any, context: Context) -> None:
        """The strategy carries it."""

    def verify(self, value: Any, context: Context) -> Outcome:
        if context.strategy is None:
            return Outcome(Status.LATE, f"the strategy was never built: {self.move_to}")
        if context.model is None or not _shows(context):
            return Outcome(Status.PENDING, "Given to the strategy; the traced train step will show it.")
        return verify_strategy(context.config, context, context.model).get(self.name) or _nothing_to_reduce()


def _shows(context: Context) -> bool:
    """Whether the step that reduces was traced, or runs eagerly and never will be."""
    state = context.bridge.reduction(context.model)
    if state is not None and state.settings.every > 1 and not state.updates:
        return False  # so far gradients were only added up
    eager = bool(getattr(context.model, "run_eagerly", False))
    return eager or context.bridge.train_graph(context.model) is not None


def _nothing_to_reduce() -> Outcome:
    return Outcome(Status.NOT_APPLICABLE, "One replica: there is nothing to reduce.")


STRATEGY_KNOBS: tuple[Knob, ...] = (StrategyKind(), Communication(), *HOROVOD_KNOBS, *REDUCTION_KNOBS)
