"""Findings about a model and its optimizer: what makes training wrong or slow, and nothing else says.

``audit_model(model)`` looks at any Keras model; ``fit`` with tfvolta's callbacks does so by itself.
"""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding
from tfvolta.errors import PlanError

__all__ = ["Finding", "audit_model", "refuse"]


def audit_model(model: Any, mixed_precision_planned: bool = False) -> list[Finding]:
    """Applies every rule.

    Args:
        model: Any Keras model, compiled or not. Of a subclassed one that was never called little is known.
        mixed_precision_planned: Whether a config converts the layers; it then reports those it did not reach.

    Returns:
        The findings; empty for a sound model.
    """
    from tfvolta.audit.averaging import averaged_accumulation
    from tfvolta.audit.conversion import half_converted
    from tfvolta.audit.outputs import half_outputs
    from tfvolta.audit.ranks import undistributed_optimizer
    from tfvolta.audit.replicas import (
        batch_below_replicas,
        clipped_shares,
        cluster_left_alone,
        uneven_shares,
        unsynchronized_batch_norm,
    )

    found = [
        averaged_accumulation(getattr(model, "optimizer", None)),
        half_outputs(model),
        None if mixed_precision_planned else half_converted(model),
        cluster_left_alone(model),
        batch_below_replicas(model),
        uneven_shares(model),
        unsynchronized_batch_norm(model),
        clipped_shares(model),
        undistributed_optimizer(model),
    ]
    return [finding for finding in found if finding is not None]


def refuse(*findings: Optional[Finding]) -> None:
    """Raises for findings that refuse training.

    Raises:
        PlanError: At least one does; all of them are listed.
    """
    refused = [finding for finding in findings if finding is not None and finding.refuses]
    if refused:
        raise PlanError(
            "Training like this gives wrong results.",
            [finding.problem("options that work together") for finding in refused],
        )
