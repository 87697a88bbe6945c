"""What happens when a fit ends: settings take back what was meant for it only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfvolta.session.first_step import in_force

if TYPE_CHECKING:
    from tfvolta.session.session import Session


def end_fit(session: Session, model: Any) -> None:
    """Lets the settings of a session take back what was meant for this fit of a model."""
    session.context.model = model
    for step in in_force(session.ledger):
        step.knob.after_fit(step.value, session.context)
