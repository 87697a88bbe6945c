"""Keras 2: layers and optimisers with sharded variables are saved as if these were whole, so that any process can load.

Keras 2 saves and loads every shard by itself, and a model trained with parameter servers could be loaded with the same
number of them only. TensorFlow's own checkpoints put shards together by themselves.

Source: keras/src/engine/base_layer.py and optimizers/optimizer.py, ``save_own_variables`` and ``load_own_variables``.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.served_variables import whole

_PART = re.compile(r"/part_(\d+)(?::\d+)?$")


def install(package: Package) -> None:
    """Corrects Keras's base classes; what has no shards is saved as before."""
    _correct(package.layer, lambda layer: [*layer._trainable_weights, *layer._non_trainable_weights])
    _correct(package.optimizer, lambda optimizer: list(optimizer.variables))


def _correct(cls: Any, variables_of: Any) -> None:
    own_save, own_load = cls.save_own_variables, cls.load_own_variables

    def save_own_variables(self: Any, store: Any) -> None:
        variables = variables_of(self)
        groups = _groups(variables)
        if len(groups) == len(variables):
            own_save(self, store)
            return
        for number, group in enumerate(groups):
            parts = [variable.numpy() for variable in group]
            store[f"{number}"] = np.concatenate(parts) if len(parts) > 1 else parts[0]

    def load_own_variables(self: Any, store: Any) -> None:
        if hasattr(self, "_update_trackables"):
            self._update_trackables()
        variables = variables_of(self)
        groups = _groups(variables)
        if len(groups) == len(variables) or len(groups) != len(store.keys()):
            own_load(self, store)
            return
        for number, group in enumerate(groups):
            value, row = np.asarray(store[f"{number}"]), 0
            for variable in group:
                rows = int(variable.shape[0]) if len(group) > 1 else 0
                variable.assign(value[row : row + rows] if len(group) > 1 else value)
                row += rows

    cls.save_own_variables = save_own_variables
    cls.load_own_variables = load_own_variables


def _groups(variables: list[Any]) -> list[list[Any]]:
    """Variables in their order, the shards of one together.

    Shards know what they are shards of. The slots that Keras 2.15 makes for them do not; their names end alike.
    """
    groups: list[list[Any]] = []
    latest: dict[Any, int] = {}
    for variable in variables:
        container, part = whole(variable), _PART.search(variable.name)
        key = variable.name[: part.start()] if container is variable and part is not None else id(container)
        # Layers of two nested models may have one name: each first shard begins anew.
        first = part is not None and container is variable and part.group(1) == "0"
        if key not in latest or first:
            latest[key] = len(groups)
            groups.append([])
        groups[latest[key]].append(variable)
    return groups
