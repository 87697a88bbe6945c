"""Keras 3: metrics that several workers update at once.

Most of Keras 3's metrics read their variables, add and write them back, so that of two workers at a time one is
forgotten. Here each step computes what it adds from nothing, and the server adds it.
"""

from __future__ import annotations

import types
from typing import Any

import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope

_KEY = "_tfvolta_alone"


def isolate(model: Any) -> bool:
    """Makes a model's metrics count rightly; False where one of them is not Keras's own, which may not be a sum."""
    alone = True
    for metric in _leaves(model.metrics):
        if not _adds_up(metric):
            alone = False
        elif _KEY not in metric.__dict__:
            metric.__dict__[_KEY] = True
            metric.__dict__["update_state"] = types.MethodType(_update_state, metric)
    return alone


def _leaves(metrics: list[Any]) -> list[Any]:
    """Metrics, and those inside containers of them."""
    found = []
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        found += _leaves(inner) if isinstance(inner, list) and inner else [metric]
    return found


def _adds_up(metric: Any) -> bool:
    """Whether a metric is one of Keras's, all of which start at zero and add up."""
    own = (type(metric).update_state, type(metric).reset_state)
    dtypes = [tf.as_dtype(variable.dtype) for variable in metric.variables]
    return all(method.__module__.startswith("keras.src.metrics") for method in own) and all(
        dtype.is_floating or dtype.is_integer for dtype in dtypes
    )


def _update_state(self: Any, *arguments: Any, **keywords: Any) -> None:
    """Replaces ``update_state``: what this batch alone would make of the metric is added on the server."""
    if in_stateless_scope() or not self.variables:  # called from below, or before it has made them
        type(self).update_state(self, *arguments, **keywords)
        return
    nothing = [tf.zeros(variable.shape, variable.dtype) for variable in self.variables]
    for variable, added in zip(self.variables, self.stateless_update_state(nothing, *arguments, **keywords)):
        variable.assign_add(added)
