"""Where each Keras keeps the metrics that a step updates; see ``tfvolta.bridge.padded_rows``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfvolta.bridge.padded_rows import StackMetrics


def _present(metrics: Any) -> list[Any]:
    return [each for each in tf.nest.flatten(metrics) if each is not None]


def _keras2_inside(model: Any, y: Any, y_pred: Any) -> list[Any]:
    """The means of the losses: of all together, and of each output."""
    held = model.compiled_loss
    if not held._built:
        held.build(y_pred)
    return [held._total_loss_mean, *_present(held._per_output_metrics)]


def _keras2_unweighted(model: Any, y: Any, y_pred: Any) -> list[Any]:
    held = model.compiled_metrics
    if not held._built:
        held.build(y_pred, held._conform_to_outputs(y_pred, y))
    return _present(held._metrics)


def _keras3_inside(model: Any, y: Any, y_pred: Any) -> list[Any]:
    """The means of the losses of each output, where there are several."""
    held = model._compile_loss
    if not held.built:
        held.build(y, y_pred)
    return _present(held.metrics)


def _keras3_unweighted(model: Any, y: Any, y_pred: Any) -> list[Any]:
    held = model._compile_metrics
    if held is None:
        return []
    if not held.built:
        held.build(y, y_pred)
    return [metric for each in held._flat_metrics if each is not None for metric in each.metrics]


KERAS2 = StackMetrics(_keras2_inside, lambda model: None, _keras2_unweighted)
KERAS3 = StackMetrics(_keras3_inside, lambda model: model._loss_tracker, _keras3_unweighted)
