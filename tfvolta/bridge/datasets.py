"""How a ``tf.data.Dataset`` is batched, read from the chain of its transformations; nothing is iterated.

Source: the classes in tensorflow/python/data/ops (``batch_op.py``, ``repeat_op.py``, ``take_op.py`` and others), the
same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import tensorflow as tf

_SHARE = "_tfvolta_ranks"
_BATCHES = frozenset({"_BatchDataset", "_ParallelBatchDataset"})
# Transformations that hand every batch on: as many, each of as many rows.
_KEEPS = frozenset(
    {
        "_MapDataset",
        "_ParallelMapDataset",
        "_PrefetchDataset",
        "_ShuffleDataset",
        "CacheDataset",
        "_OptionsDataset",
        "_AssertCardinalityDataset",
        "_ModelDataset",
    }
)


@dataclasses.dataclass(frozen=True)
class Batching:
    """How a data set is batched.

    Attributes:
        batch: Rows of a full batch.
        rows: Rows in one pass over the rows that are batched; None where not known or without end.
        remainder: Rows of the smaller last batch; 0 where there is none, None where not known.
        full_batches: Full batches in the whole data set; None where not known.
    """

    batch: int
    rows: Optional[int] = None
    remainder: Optional[int] = None
    full_batches: Optional[int] = None


def batching(dataset: Any) -> Optional[Batching]:
    """How a data set is batched; None where its last transformations hide it (``unbatch``, ``flat_map``)."""
    name = type(dataset).__name__
    if _SHARE in dataset.__dict__:
        whole, ranks = dataset.__dict__[_SHARE]
        return None if whole is None else _shared(whole, ranks)
    if name in _BATCHES:
        return _batched(dataset)
    inner = getattr(dataset, "_input_dataset", None)
    found = None if inner is None else batching(inner)
    if found is None or name in _KEEPS:
        return found
    if name == "_RepeatDataset":
        return _repeated(found, _number(dataset._count))
    if name == "_TakeDataset":
        return _taken(found, _number(dataset._count))
    return dataclasses.replace(found, full_batches=None) if name == "_SkipDataset" else None


def mark_share(dataset: Any, whole: Optional[Batching], ranks: int) -> None:
    """Notes that a data set keeps of each batch the share of one of several ranks.

    Args:
        dataset: The data set of shares.
        whole: How the batches are that it shares.
        ranks: Number of ranks.
    """
    dataset.__dict__[_SHARE] = (whole, ranks)


def chain(dataset: Any) -> list[Any]:
    """A data set and all those that it is made from, the last transformation first."""
    found = [dataset]
    for each in found:
        found.extend(each._inputs())
    return found


def static_batch(spec: Any) -> Optional[int]:
    """The batch size that every tensor of an element spec fixes; None where one of them leaves it open."""
    shapes = [part.shape for part in tf.nest.flatten(spec) if isinstance(part, tf.TypeSpec) and hasattr(part, "shape")]
    sizes = {shape[0] if shape.rank else None for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else None


def _batched(dataset: Any) -> Optional[Batching]:
    batch = _number(dataset._batch_size)
    if not batch or batch < 1:
        return None
    rows = int(dataset._input_dataset.cardinality())
    if bool(_number(dataset._drop_remainder)):
        return Batching(batch, rows if rows >= 0 else None, 0, rows // batch if rows >= 0 else None)
    if rows == tf.data.INFINITE_CARDINALITY:
        return Batching(batch, None, 0)
    if rows < 0:
        return Batching(batch)
    return Batching(batch, rows, rows % batch, rows // batch)


def _shared(whole: Batching, ranks: int) -> Batching:
    """Each rank's share: rows that do not divide, and a batch with fewer rows than ranks, are left out."""
    if whole.rows is None or whole.remainder is None or whole.full_batches is None:
        return Batching(whole.batch // ranks, None, None if whole.remainder is None else whole.remainder // ranks)
    rest = whole.remainder // ranks
    rows = whole.rows // whole.batch * (whole.batch // ranks) + rest
    return Batching(whole.batch // ranks, rows, rest, whole.full_batches)


def _repeated(found: Batching, times: Optional[int]) -> Batching:
    number = None if times is None or times < 0 or found.full_batches is None else found.full_batches * times
    return dataclasses.replace(found, full_batches=number)


def _taken(found: Batching, batches: Optional[int]) -> Batching:
    """The first batches; of a repeated data set they may hold more than one smaller batch."""
    if batches is None or batches < 0 or found.full_batches is None or found.remainder is None:
        return dataclasses.replace(found, full_batches=None)
    if batches <= found.full_batches and found.rows is not None and found.full_batches == found.rows // found.batch:
        return dataclasses.replace(found, rows=batches * found.batch, remainder=0, full_batches=batches)
    return found if found.remainder else dataclasses.replace(found, full_batches=min(batches, found.full_batches))


def _number(tensor: Any) -> Optional[int]:
    """The value of a transformation's argument; None in a graph, where it has none yet."""
    value = tf.get_static_value(tensor)
    return None if value is None else int(value)
