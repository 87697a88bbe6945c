"""Builds the strategy that a config asks for, and verifies it in a model."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, MutableMapping, Optional, cast

from tfvolta.bridge import present_stack
from tfvolta.errors import PlanError
from tfvolta.knobs.base import Context
from tfvolta.outcome import Outcome
from tfvolta.strategy import devices, registry
from tfvolta.strategy.batch_norm import audit_batch_norm, note_batch_norm

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.phase import Closure, Moment


@dataclasses.dataclass
class _Process:
    """The context of a strategy that is built outside a session: this process as it is."""

    config: Any
    facts: Any = None
    stack: str = dataclasses.field(default_factory=present_stack)
    environ: MutableMapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    model: Optional[Any] = None
    saved: dict[str, Any] = dataclasses.field(default_factory=dict)
    strategy: Optional[Any] = None

    @property
    def tensorflow(self) -> Any:
        """The tensorflow module."""
        import tensorflow

        return tensorflow

    @property
    def bridge(self) -> Any:
        """The bridge of the stack that ``tf.keras`` means here."""
        from tfvolta.bridge import bridge_for_stack

        return bridge_for_stack(self.stack)

    def closed(self, moment: Moment) -> Optional[Closure]:
        """What closed a moment in this process."""
        from tfvolta.bridge import runtime

        return runtime.closed(moment, self.model)


def build_strategy(config: Config, session: Optional[Any] = None) -> Any:
    """The ``tf.distribute.Strategy`` that a config asks for.

    Call it after the environment and devices phases were applied: it initialises TensorFlow's devices. Building the
    same configuration twice gives the same object, so that collectives keep counting on.

    Args:
        config: With or without strategy and communication sections.
        session: The session of the run, or its context; None uses this process as it is.

    Returns:
        The strategy; TensorFlow's default one where there is a single replica on the default device.

    Raises:
        PlanError: The kind does not exist, or cannot do what the config asks on the devices that this process has;
            all problems at once.
    """
    context = cast(Context, _Process(config) if session is None else getattr(session, "context", session))
    kind = registry.find(registry.kind_name(config), devices.where(config, "strategy.kind"))
    found = kind.check(config, kind.inventory(context.tensorflow))
    if found:
        count = len(found)
        raise PlanError(f"This strategy cannot be built here: {count} problem{'s' * (count > 1)}.", found)
    return kind.build(config, context)


def verify_strategy(
    config: Config, context: Context, model: Any, global_batch: Optional[int] = None
) -> dict[str, Outcome]:
    """How the strategy and communication sections ended, seen in a model that was trained for a step.

    Args:
        config: What was asked.
        context: The context of the run; its ``strategy`` is what ``build_strategy`` returned.
        model: A built model with a traced train step.
        global_batch: Examples of one batch given to ``fit``, where known.

    Returns:
        Outcomes by name: ``strategy``; ``communication`` where there are several replicas or something was asked.
    """
    kind = registry.find(registry.kind_name(config))
    strategy = getattr(context, "strategy", None) or model.distribute_strategy
    outcome = kind.verify(strategy, config, model, global_batch)
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    unsynchronized = audit_batch_norm(model, replicas)
    if unsynchronized:
        outcome = Outcome(
            outcome.status,
            f"{outcome.message} {note_batch_norm(model, replicas, global_batch)}",
            {**outcome.observed, "batch_norm_not_synchronized": unsynchronized},
        )
    outcomes = {"strategy": outcome}
    reduced = kind.verify_communication(config, model, model.distribute_strategy)
    return outcomes if reduced is None else {**outcomes, "communication": reduced}
