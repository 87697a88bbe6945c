"""A process that serves others: what its session says, since no model is ever made or trained in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfvolta.cluster import resolve
from tfvolta.errors import ClusterError
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Phase
from tfvolta.strategy.knobs import StrategyKind
from tfvolta.strategy.parameter_server import ParameterServer, serves
from tfvolta.strategy.registry import kind_name

if TYPE_CHECKING:
    from tfvolta.session.session import Session
    from tfvolta.strategy.serving import Served


def is_server(session: Session) -> bool:
    """Whether this process serves under its session's config, so that no script is to be run in it."""
    if kind_name(session.config) != ParameterServer.name:
        return False
    context = session.context
    try:
        return serves(resolve(context.environ, session.config, context.facts))
    except ClusterError:
        return False  # the plan says what is wrong


def close_served(session: Session, served: Served) -> None:
    """Ends the session of a process that has served: what binds to a model was the chief's to bind."""
    for step in session.plan.steps:
        if step.knob.name == StrategyKind.name:
            outcome = Outcome(Status.APPLIED, f"Served as {served.name} until the chief had finished.")
        elif step.knob.name in session.endings and session.endings[step.knob.name].outcome.status is not Status.PENDING:
            continue
        else:
            outcome = Outcome(
                Status.NOT_APPLICABLE, f"{served.name} makes no model of its own; the chief's process does."
            )
        session.ledger.end(step, outcome, Phase.STRATEGY)
    session.close("completed")
