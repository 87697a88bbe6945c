"""Whether an optimiser of several replicas clips the gradient of the whole batch."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge import stack_of


def clips_sums(optimizer: Any) -> bool:
    """True where clipping comes after the replicas' gradients were added up; False where it cuts each one's share.

    Keras 2 adds up first. Keras 3 does so once its optimiser is corrected, which ``fit`` with tfvolta's callbacks does.
    """
    if stack_of(optimizer) != "keras3":
        return True
    from tfvolta.bridge import keras3_replicas

    return keras3_replicas.is_installed(optimizer)
