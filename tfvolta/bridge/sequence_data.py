"""Whether the elements of a data set are batches, and what was noted of how its sequences were batched.

Source: the classes in tensorflow/python/data/ops, the same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

_NOTE = "_tfvolta_sequences"
_BATCHES = frozenset({"_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"})
_HIDES = frozenset({"_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset"})


def is_batched(dataset: Any) -> Optional[bool]:
    """Whether elements are batches; None where a generator or ``flat_map`` makes them, which can be either."""
    parts = tf.nest.flatten(dataset.element_spec)
    if any(isinstance(part, tf.RaggedTensorSpec) and part.ragged_rank > 0 for part in parts):
        return True
    each = dataset
    while each is not None:
        name = type(each).__name__
        if name in _BATCHES:
            return True
        if name == "_UnbatchDataset":
            return False
        if name in _HIDES:
            return None
        each = getattr(each, "_input_dataset", None)
    return False


def batch_rows(dataset: Any) -> Optional[int]:
    """Rows of a full batch; None where they are not known."""
    each = dataset
    while each is not None and type(each).__name__ not in (*_BATCHES, *_HIDES, "_UnbatchDataset"):
        each = getattr(each, "_input_dataset", None)
    size = tf.get_static_value(getattr(each, "_batch_size", None)) if type(each).__name__ in _BATCHES else None
    return None if size is None else int(size)


def note(dataset: Any, report: Any) -> None:
    """Notes with a data set how its sequences were batched."""
    dataset.__dict__[_NOTE] = report


def noted(dataset: Any) -> Any:
    """What was noted, for this data set or one that it was made from by transformations that keep its batches."""
    each = dataset
    while each is not None:
        if _NOTE in each.__dict__:
            return each.__dict__[_NOTE]
        each = getattr(each, "_input_dataset", None)
    return None
