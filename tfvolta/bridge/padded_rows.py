"""Rows that only fill a batch up: a model that leaves them out of its loss, its metrics and its count of examples.

A filled row has the sample weight minus infinity, which no row of data has. Where a model was told to, it takes such
rows' weight for zero, and multiplies those of the others by rows of the batch over true rows, since Keras divides the
sum of a batch's losses by all its rows. With several replicas the rows of all of them count, so that a replica with
filled rows only adds nothing. Metrics that are given no weights get one for each true row and zero for the others, and
the mean of the loss over an epoch counts true rows.
Source: ``train_step``, ``compute_loss`` and ``compute_metrics`` in keras/src/backend/tensorflow/trainer.py and
keras/src/trainers/trainer.py of Keras 3.15, and in keras/src/engine/training.py and compile_utils.py of Keras 2.15.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any, Callable, Iterator, Optional, Sequence

import tensorflow as tf

FILLED = float("-inf")
_INSTALLED = "_tfvolta_padded_rows"
_COUNTS = "_tfvolta_counts_true_rows"


@dataclasses.dataclass(frozen=True)
class StackMetrics:
    """Where a Keras keeps the metrics that a step updates.

    Attributes:
        inside: Metrics that ``compute_loss`` updates with the number of rows as weight, given the model, targets and
            outputs.
        after: The metric that the step updates in that way after ``compute_loss``; None where there is none.
        unweighted: Metrics that ``compute_metrics`` gives no weights, given the same.
    """

    inside: Callable[[Any, Any, Any], Sequence[Any]]
    after: Callable[[Any], Optional[Any]]
    unweighted: Callable[[Any, Any, Any], Sequence[Any]]


class _Share(threading.local):
    """Share of true rows in the batch that is being traced in this thread; None outside of one with filled rows."""

    value: Optional[Any] = None
    graph: Optional[Any] = None


_share = _Share()


def is_installed(model: Any) -> bool:
    """Whether a model leaves out filled rows."""
    return _INSTALLED in model.__dict__


def install(model: Any, metrics: StackMetrics, scaled: bool) -> None:
    """Makes a model leave filled rows out; batches without any are what they were.

    Args:
        model: A model whose ``compute_loss`` and ``compute_metrics`` are Keras's.
        metrics: Where its Keras keeps its metrics.
        scaled: Whether its losses are means over the rows; sums need no factor.
    """
    own_loss, own_metrics = type(model).compute_loss, type(model).compute_metrics

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **named: Any
    ) -> Optional[Any]:
        share = None if sample_weight is None else _true_share(sample_weight)
        _share.value, _share.graph = share, tf.compat.v1.get_default_graph()
        if share is None:
            return own_loss(model, x, y, y_pred, sample_weight, **named)
        after = metrics.after(model)
        if after is not None:
            _count_true_rows(after)
        weights = _cleaned(sample_weight, 1.0 / share if scaled else 1.0)
        with _with_weights(metrics.inside(model, y, y_pred), lambda given: _times(given, share)):
            return own_loss(model, x, y, y_pred, weights, **named)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compute_metrics(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None:
            return own_metrics(model, x, y, y_pred, sample_weight)
        rows = tf.cast(_is_true(sample_weight), tf.float32)
        with _with_weights(metrics.unweighted(model, y, y_pred), lambda given: rows if given is None else given):
            return own_metrics(model, x, y, y_pred, _cleaned(sample_weight, 1.0))

    model.__dict__.update({_INSTALLED: True, "compute_loss": compute_loss, "compute_metrics": compute_metrics})


def _is_true(sample_weight: Any) -> Any:
    """Which rows are no filled ones: booleans of shape ``(batch,)``."""
    weight = tf.nest.flatten(sample_weight)[0]
    return tf.math.is_finite(tf.reshape(weight, [tf.shape(weight)[0], -1])[:, 0])


def _true_share(sample_weight: Any) -> Any:
    """True rows of the batch of all replicas over all its rows."""
    true = tf.cast(_is_true(sample_weight), tf.float32)
    counts = tf.stack([tf.reduce_sum(true), tf.cast(tf.size(true), tf.float32)])
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:
        counts = replica.all_reduce(tf.distribute.ReduceOp.SUM, counts)
    return counts[0] / counts[1]


def _cleaned(sample_weight: Any, factor: Any) -> Any:
    """Weights of which those of filled rows are zero and the others are multiplied."""

    def clean(weight: Any) -> Any:
        return tf.where(tf.math.is_finite(weight), weight * tf.cast(factor, weight.dtype), tf.zeros_like(weight))

    return tf.nest.map_structure(clean, sample_weight)


@contextlib.contextmanager
def _with_weights(metrics: Sequence[Any], weight: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, ``update_state`` of the metrics gets another weight than it is given."""
    former = [(metric, metric.__dict__.get("update_state")) for metric in metrics]
    for metric, _ in former:
        metric.__dict__["update_state"] = _reweighted(metric.update_state, weight)
    try:
        yield
    finally:
        for metric, own in former:
            del metric.__dict__["update_state"]
            if own is not None:
                metric.__dict__["update_state"] = own


def _times(rows: Any, share: Any) -> Any:
    """True rows of a batch; None as it is, which Keras 3 gives where it does not know the number of rows."""
    return None if rows is None else tf.cast(rows, tf.float32) * share


def _reweighted(update_state: Any, weight: Callable[[Any], Any]) -> Any:
    def update(*values: Any, sample_weight: Any = None) -> Any:
        return update_state(*values, sample_weight=weight(sample_weight))

    return update


def _count_true_rows(tracker: Any) -> None:
    """Makes the mean of the loss, which is updated after ``compute_loss``, count the true rows of the same step."""
    if _COUNTS in tracker.__dict__:
        return
    own = tracker.update_state

    def update_state(*values: Any, sample_weight: Any = None) -> Any:
        if _share.value is not None and _share.graph is tf.compat.v1.get_default_graph():
            sample_weight = _times(sample_weight, _share.value)
        return own(*values, sample_weight=sample_weight)

    tracker.__dict__.update({_COUNTS: True, "update_state": update_state})
