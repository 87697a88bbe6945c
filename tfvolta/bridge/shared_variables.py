"""What has to be the same on every rank of a training: weights and the optimiser's state."""

from __future__ import annotations

from typing import Any

from tfvolta.bridge import resuming
from tfvolta.bridge.resuming_records import Named


def shared_variables(bridge: Any, model: Any) -> list[Named]:
    """Weights and optimiser variables of a model, each once.

    States of random seeds are left out: ranks with the same would drop the same units of different examples. So are
    metrics and counters, which are each rank's own.

    Args:
        bridge: Of the model's Keras.
        model: A model whose variables exist.
    """
    found = {id(variable): (name, variable) for name, variable in resuming.named(model.weights)}
    for name, variable in bridge.training_variables(model)["optimizer"]:
        found.setdefault(id(variable), (name, variable))
    return list(found.values())


def trained_variables(model: Any) -> list[Named]:
    """The weights that the optimiser changes, which must be bit for bit the same on all ranks."""
    return resuming.named(model.trainable_weights)
