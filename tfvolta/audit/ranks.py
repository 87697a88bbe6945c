"""Ranks that train models of their own without knowing it."""

from __future__ import annotations

import sys
from typing import Any, Optional

from tfvolta.audit.finding import Finding


def undistributed_optimizer(model: Any) -> Optional[Finding]:
    """Finds an optimizer that nobody distributes although Horovod has several ranks.

    A model with a ``train_step`` of its own may reduce its gradients there, and is left alone.
    """
    horovod = sys.modules.get("horovod.tensorflow")
    started = getattr(horovod, "is_initialized", None)
    if started is None or not started() or horovod is None or horovod.size() < 2:
        return None
    from tfvolta.bridge.own_step import has_own_step
    from tfvolta.strategy.horovod_verification import distributed_by

    if getattr(model, "optimizer", None) is None or has_own_step(model) or distributed_by(model):
        return None
    return Finding(
        rule="undistributed_optimizer",
        what=f"size() > 1 but the optimizer is not distributed: Horovod has {horovod.size()} ranks and "
        f"{type(model.optimizer).__name__} reduces nothing",
        layers=(),
        why="every rank trains a model of its own, without a word; a model that Keras loads has a plain optimizer, "
        "whatever it was trained with",
        fix="set strategy.kind: horovod, or wrap the optimizer with hvd.DistributedOptimizer before compile",
    )
