"""Batches of one size only, so that XLA compiles the train step once."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.errors import ConfigError, Problem


def static_batches(dataset: Any, batch_size: Optional[int] = None) -> Any:
    """Leaves out batches that are smaller than the others, and fixes the batch dimension of the rest.

    XLA compiles a step for each shape: the last, smaller batch of an epoch costs a second compilation. Rows are not
    moved between batches; a data set that is shuffled before it is batched leaves out other rows in each epoch.

    Example:
        ``model.fit(tfvolta.data.static_batches(dataset), callbacks=[tfvolta.callbacks.XlaJit()])``

    Args:
        dataset: A ``tf.data.Dataset`` of batches: tensors of shape ``(batch, ...)``, in any structure.
        batch_size: Rows of a full batch; read from the data set's ``batch`` where it is not given.

    Returns:
        The data set; as it is where every batch has the same size already.

    Raises:
        ConfigError: The batch size is not given and cannot be read from the data set.
    """
    from tfvolta.bridge import datasets

    found = datasets.batching(dataset)
    if datasets.static_batch(dataset.element_spec) is not None:
        return dataset
    size = batch_size or (found.batch if found is not None else None)
    if size is None:
        raise ConfigError("The batch size of this data set is not known.", [_unknown(dataset)])
    number = found.full_batches if found is not None and found.batch == size else None
    return _of_size(dataset, size, number)


def _of_size(dataset: Any, size: int, number: Optional[int]) -> Any:
    """The batches of one size, as many as are known to be there."""
    import tensorflow as tf

    spec = dataset.element_spec
    endless = dataset.cardinality() == tf.data.INFINITE_CARDINALITY

    def whole(*element: Any) -> Any:
        return tf.equal(tf.cast(rows_of(element), tf.int64), size)

    def fixed(*element: Any) -> Any:
        set_rows(element, size)
        return element if isinstance(spec, tuple) else element[0]

    kept = dataset.filter(whole).map(fixed)
    if endless:
        return kept.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return kept if number is None else kept.apply(tf.data.experimental.assert_cardinality(number))


def set_rows(element: Any, size: int) -> None:
    """Fixes the batch dimension of the tensors of a batch whose size is known."""
    import tensorflow as tf

    for part in tf.nest.flatten(element):
        if isinstance(part, tf.Tensor) and part.shape.rank:
            part.set_shape([size, *part.shape[1:]])


def rows_of(element: Any) -> Any:
    """Rows of a batch, from the first part of it that has any; a scalar tensor.

    Raises:
        ConfigError: Its parts are scalars.
    """
    import tensorflow as tf

    for part in tf.nest.flatten(element):
        if isinstance(part, tf.RaggedTensor):
            return part.nrows()
        if isinstance(part, tf.SparseTensor):
            return part.dense_shape[0]
        if isinstance(part, tf.Tensor) and part.shape.rank != 0:
            return tf.shape(part)[0]
    raise ConfigError("This data set has no batches.", [_unbatched()])


def _unknown(dataset: Any) -> Problem:
    return Problem(
        where="tfvolta.data.static_batches",
        expected="a data set whose last transformations keep the batches of batch(n)",
        received=f"{type(dataset).__name__}, which hides them",
        why="unbatch, flat_map, filter or a generator can make batches of any size",
        fix="name the size: tfvolta.data.static_batches(dataset, batch_size=64)",
    )


def _unbatched() -> Problem:
    return Problem(
        where="tfvolta.data.static_batches",
        expected="tensors of shape (batch, ...)",
        received="scalars only",
        fix="tfvolta.data.static_batches(dataset.batch(64))",
    )
