"""The part of each batch that one of several ranks trains on."""

from __future__ import annotations

from typing import Any

from tfvolta.data.sharding import Sharding
from tfvolta.data.static import rows_of, set_rows


def share_of_batches(dataset: Any, rank: int, size: int) -> tuple[Any, Sharding]:
    """Leaves of each batch the rows that belong to one rank, so that a batch stays the global batch.

    Every rank reads the same batches in the same order and keeps as many rows of each: rank 0 the first ones, and so
    on. Rows of a batch that do not divide by the number of ranks are left out, so that the mean over the ranks is the
    mean over the rows; a batch with fewer rows than ranks is left out altogether.

    Args:
        dataset: A ``tf.data.Dataset`` of batches: tensors of shape ``(batch, ...)``, in any structure.
        rank: Number of this rank.
        size: Number of ranks.
    """
    import tensorflow as tf

    from tfvolta.bridge import data_order, datasets

    spec = dataset.element_spec
    batching = datasets.batching(dataset)
    static = datasets.static_batch(spec)

    def cut(*element: Any) -> Any:
        each = rows_of(element) // size
        share = tf.nest.map_structure(
            lambda part: part if part.shape.rank == 0 else part[rank * each : (rank + 1) * each], element
        )
        if static is not None:
            set_rows(share, static // size)
        return share if isinstance(spec, tuple) else share[0]

    small = batching is None or batching.remainder is None or 0 < batching.remainder < size
    kept = dataset.filter(lambda *element: rows_of(element) >= size) if small else dataset
    shared = kept.map(cut, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    if small and batching is not None and batching.full_batches is not None and batching.remainder is not None:
        shared = shared.apply(tf.data.experimental.assert_cardinality(batching.full_batches))
    datasets.mark_share(shared, batching, size)
    message = f"Each of {size} ranks trains on 1/{size} of every batch, which so stays the global batch."
    if batching is not None and (batching.batch % size or (batching.remainder or 0) % size):
        message += f" Rows of a batch that do not divide by {size} are left out."
    if data_order.of_dataset(dataset) in (data_order.UNSEEDED, data_order.UNKNOWN):
        message += " The order has no seed, so ranks draw different batches: shuffle(..., seed=N) makes them agree."
    return shared, Sharding("data", message)
