"""The loss of one replica's share of a batch, so that the sum of all replicas' gradients is that of the whole batch.

The mean over a share has to be weighed with the size of the share. Keras 2 refuses its own mean under a strategy, Keras
3 weighs all shares alike, and a function that a script writes does neither.

Source: keras/src/losses.py and utils/losses_utils.py of Keras 2.15; keras/src/losses/loss.py of Keras 3.15.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Optional

import tensorflow as tf

_MEANS = ("auto", "sum_over_batch_size", "mean", "mean_with_sample_weight")


class ReplicaLoss(NamedTuple):
    """What one replica contributes to a step.

    Attributes:
        loss: Its part of the loss of the whole batch: the loss of the batch is the sum over replicas. Scalar, float.
        replica_batch: Examples of its share; scalar, int32.
        global_batch: Examples of all shares together; scalar, int32.
    """

    loss: Any
    replica_batch: Any
    global_batch: Any


def replica_loss(
    loss: Any, y_true: Any, y_pred: Any, sample_weight: Optional[Any] = None, global_batch: Optional[int] = None
) -> ReplicaLoss:
    """See ``tfvolta.distributed_loop.replica_loss``."""
    share = _rows(y_pred)
    whole = _over_replicas(share) if global_batch is None else tf.constant(global_batch, tf.int32)
    if not hasattr(loss, "reduction"):
        values = tf.convert_to_tensor(loss(y_true, y_pred))
        if sample_weight is not None:
            values = values * _fitting(tf.cast(sample_weight, values.dtype), values)
        return ReplicaLoss(_mean(values, share, whole), share, whole)
    values = tf.convert_to_tensor(_unreduced(loss)(y_true, y_pred, sample_weight=sample_weight))
    reduction = str(loss.reduction).lower()
    if reduction == "sum":
        return ReplicaLoss(tf.reduce_sum(values), share, whole)
    mask = getattr(y_pred, "_keras_mask", None)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        weights = tf.cast(sample_weight, values.dtype)
        if mask is not None:
            weights = weights * _fitting(tf.cast(mask, values.dtype), weights)
        return ReplicaLoss(tf.math.divide_no_nan(tf.reduce_sum(values), _over_replicas(_sum(weights))), share, whole)
    if mask is not None and reduction in _MEANS:
        valid = _sum(tf.cast(mask, values.dtype)) * _ratio(tf.size(values), tf.size(mask), values.dtype)
        return ReplicaLoss(tf.math.divide_no_nan(tf.reduce_sum(values), _over_replicas(valid)), share, whole)
    return ReplicaLoss(_mean(values, share, whole), share, whole)


def replicas() -> int:
    """Replicas that train in step with this one."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def in_cross_replica_context() -> bool:
    """Whether the present code runs outside of ``strategy.run``, where there are several replicas."""
    return replicas() > 1 and tf.distribute.in_cross_replica_context()


def gradients(tape: Any, loss: Any, variables: Any) -> Any:
    """Gradients of a loss, for variables of any Keras."""
    return tape.gradient(loss, variables)


def tape() -> Any:
    """A tape to compute a loss in."""
    return tf.GradientTape()


def of_replicas(strategy: Any, value: Any) -> list[Any]:
    """What each replica of this process has of a value, as numbers."""
    return [part.numpy().item() for part in strategy.experimental_local_results(value)]


def _unreduced(loss: Any) -> Any:
    """A Keras loss that leaves the value of each example as it is; weights and masks are still applied."""
    each = copy.copy(loss)
    each.reduction = "none"
    return each


def _mean(values: Any, share: Any, whole: Any) -> Any:
    """The part of this share in the mean over the whole batch.

    A single value is the mean over the share. Of several, the first axis counts examples.
    """
    if values.shape.rank == 0:
        return values * _ratio(share, whole, values.dtype)
    elements = _ratio(tf.size(values), tf.maximum(share, 1), values.dtype)  # of one example
    return tf.math.divide_no_nan(tf.reduce_sum(values), elements * tf.cast(whole, values.dtype))


def _rows(y_pred: Any) -> Any:
    first = tf.nest.flatten(y_pred)[0]
    return tf.shape(first)[0]


def _over_replicas(value: Any) -> Any:
    """The sum of a number over all replicas."""
    if replicas() == 1:
        return value
    context = tf.distribute.get_replica_context()
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(value, tf.float32))
    return tf.cast(total, value.dtype)


def _sum(values: Any) -> Any:
    return tf.stop_gradient(tf.reduce_sum(values))


def _ratio(part: Any, whole: Any, dtype: Any) -> Any:
    return tf.math.divide_no_nan(tf.cast(part, dtype), tf.cast(whole, dtype))


def _fitting(weights: Any, values: Any) -> Any:
    """Weights with as many axes as the values that they are for."""
    while weights.shape.rank < values.shape.rank:
        weights = weights[..., tf.newaxis]
    return weights
