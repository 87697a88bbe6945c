"""What several replicas make of layers and optimizers that were written for one."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.audit.finding import Finding
from tfvolta.strategy.batch_norm import SYNCHRONIZE, audit_batch_norm, why_batch_norm

_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


def replicas_of(model: Any) -> int:
    """Number of replicas that a model trains on."""
    return int(model.distribute_strategy.num_replicas_in_sync)


def unsynchronized_batch_norm(model: Any) -> Optional[Finding]:
    """Finds batch normalisation that sees one replica's share of the batch."""
    replicas = replicas_of(model)
    names = audit_batch_norm(model, replicas)
    if not names:
        return None
    return Finding(
        rule="unsynchronized_batch_norm",
        what="BatchNormalization is not synchronized",
        layers=tuple(names),
        why=why_batch_norm(model, replicas),
        fix=SYNCHRONIZE,
    )


def clipped_shares(model: Any) -> Optional[Finding]:
    """Finds clipping that Keras 3 applies to each replica's share of the gradient instead of the sum.

    Source: ``_backend_apply_gradients`` clips and then calls ``_backend_update_step``, which adds up the replicas.
    """
    from tfvolta.bridge import bridge_for, stack_of

    optimizer = getattr(model, "optimizer", None)
    replicas = replicas_of(model)
    if optimizer is None or replicas < 2 or stack_of(model) != "keras3":
        return None
    inner = bridge_for(optimizer).inner_optimizer(optimizer)
    name = next((name for name in _CLIPPING if getattr(inner, name, None)), None)
    if name is None:
        return None
    return Finding(
        rule="clipped_shares",
        what=f"{type(inner).__name__} has {name}={getattr(inner, name)} and trains on {replicas} replicas",
        layers=(),
        why=f"Keras 3 clips the share of each replica before it adds them up: a share is 1/{replicas} of the gradient,"
        f" so the limit is up to {replicas} times what it says",
        fix=f"divide {name} by {replicas}, or clip in a train_step of your own with"
        " tfvolta.precision.clip_by_global_norm",
    )
