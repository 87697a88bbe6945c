"""Why a batch cannot be trained in parts with the update of the whole."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow as tf

from tfvolta.bridge import own_step, reduction_part

# Reductions of a loss that are a mean over rows; a loss without one of its own gets the first from Keras.
_MEANS = ("sum_over_batch_size", "auto", "mean")


def why_whole(model: Any, layers: Iterable[tuple[str, Any]]) -> str:
    """The reason in a sentence; empty where the mean of the parts' gradients is the gradient of the whole.

    Args:
        model: A compiled model.
        layers: Its layers by path.
    """
    if own_step.has_own_step(model):
        return "The batch was not split: the model has a train_step of its own, whose loss may be no mean over rows."
    for loss in tf.nest.flatten(getattr(model, "loss", None)):
        reduction = getattr(loss, "reduction", None)
        if reduction is not None and str(reduction).lower().rpartition(".")[2] not in _MEANS:
            given = f"{type(loss).__name__}(reduction={reduction!r})"
            return f"The batch was not split: {given} is no mean over the rows of a batch."
    for name, layer in layers:
        if getattr(layer, "mask_zero", False) or type(layer).__name__ == "Masking":
            return f"The batch was not split: {name} makes a mask, and parts differ in how much of them is masked."
    path = reduction_part.path_of(model)
    if path is not None and path.settings.every > 1:
        return "The batch was not split: gradients of the batches before wait in the window that the parts would use."
    if int(model.distribute_strategy.num_replicas_in_sync) > 1:
        return "The batch was not split: other replicas have taken their own parts of it."
    return ""


def parts_of(data: Any, number: int) -> Any:
    """A batch as a data set of so many parts of one size.

    Args:
        data: A batch; every tensor of it has the same number of rows.
        number: Divides the rows.
    """
    rows = rows_of(data)
    assert rows is not None and rows % number == 0

    def stacked(part: Any) -> Any:
        return tf.reshape(part, tf.concat([[number, rows // number], tf.shape(part)[1:]], 0))

    with tf.device("CPU:0"):
        return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(stacked, data))


def rows_of(data: Any) -> Any:
    """Rows of a batch; None where its parts are no tensors of as many rows."""
    parts = tf.nest.flatten(data)
    if not parts or not all(isinstance(part, tf.Tensor) and part.shape.rank for part in parts):
        return None
    rows = {int(part.shape[0]) for part in parts}
    return rows.pop() if len(rows) == 1 else None


def size_of(data: Any) -> int:
    """Numbers in the first tensor of a batch, by which batches are compared."""
    return int(tf.size(tf.nest.flatten(data)[0]))


def divisors(rows: int, least: int) -> list[int]:
    """Numbers of parts of one size, from the least one on."""
    return [number for number in range(max(least, 2), rows + 1) if rows % number == 0]
