"""Horovod as the all-reduce of a model's gradients: dense ones summed, in groups if asked, sparse ones gathered.

Sparse gradients (``IndexedSlices``) are Horovod's weak place: it gathers the rows of all ranks, the same row as often
as it was named, which takes more memory and time than a dense sum as soon as the rows of all ranks outweigh the
variable. So rows are merged on each rank first, and a gradient whose dense form is smaller is made dense.

Every rank must make the same choice, or ranks wait for each other for ever. So a choice depends on shapes, on the
number of ranks and on a batch size that all ranks have agreed on, and it is kept for later traces.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import weakref
from typing import Any, Mapping, MutableMapping, Optional, Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

from tfvolta.bridge.reduction import AllReduce
from tfvolta.bridge.window import key_of
from tfvolta.bridge.wire import values_of

# A sparse gradient with an unknown number of rows is made dense up to the size that one pack has by default.
UNKNOWN_ROWS_BYTES = 128 * 1024 * 1024
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class HorovodSettings:
    """What is asked of the reduction.

    Attributes:
        groups: Number of groups of gradients, each reduced when all of it is there; None leaves that to Horovod.
        sparse_as_dense: ``auto``, ``always`` or ``never``.
        predivide_factor: Part of the division by the number of ranks that comes before the sum; None for all of it.
    """

    groups: Optional[int] = None
    sparse_as_dense: str = "auto"
    predivide_factor: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class SparseGradient:
    """How the sparse gradient of one variable travels.

    Attributes:
        name: Of the variable.
        dense_bytes: Of the whole gradient.
        rows: Rows that one rank's batch names at most; None where not known.
        gathered_bytes: Rows of all ranks with their indices; None where not known.
        as_dense: Whether it is made dense.
    """

    name: str
    dense_bytes: int
    rows: Optional[int]
    gathered_bytes: Optional[int]
    as_dense: bool

    def to_json(self) -> dict[str, Any]:
        """The choice as JSON values."""
        return dataclasses.asdict(self)


class HorovodReduction:
    """The all-reduce of one model's gradients.

    Attributes:
        settings: What was asked.
        size: Number of ranks.
        batch: Rows of a batch that all ranks have agreed on; None where not known.
        sparse: The choices made so far, by variable.
        expected: Operations that the last call made, by type and dtype as a graph counts them.
        formats: Dtype of each gradient in the last call, as it travels.
        gathered: How many of them were sparse, and gathered.
    """

    def __init__(self, settings: HorovodSettings, size: int, batch: Optional[int] = None):
        self.settings = settings
        self.size = size
        self.batch = batch
        self.sparse: dict[Any, SparseGradient] = {}
        self.expected: Mapping[str, int] = {}
        self.formats: tuple[str, ...] = ()
        self.gathered = 0
        self._number = next(_numbers)  # of the same model on every rank: all run one program
        self._calls: MutableMapping[Any, int] = weakref.WeakKeyDictionary()

    def all_reduce(self) -> AllReduce:
        """The hook of ``Bridge.set_reduction``."""
        return AllReduce(self.sum_over_ranks, ranks=self.size, name="Horovod", prepare=self.prepare)

    def prepare(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Sparse gradients made dense, or with every row once."""
        return [self._prepared(gradient, variable) for gradient, variable in zip(gradients, variables)]

    def sum_over_ranks(self, gradients: list[Any]) -> list[Any]:
        """Each gradient summed over all ranks; sparse ones gathered."""
        prefix = f"tfvolta_{self._number}_{self._call()}"
        summed: list[Any] = list(gradients)
        made: dict[str, int] = {}
        dense = [place for place, gradient in enumerate(gradients) if not isinstance(gradient, tf.IndexedSlices)]
        for number, places in enumerate(self._groups(gradients, dense)):
            values = self._sum([gradients[place] for place in places], f"{prefix}_{number}", made)
            for place, value in zip(places, values):
                summed[place] = value
        for place, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                summed[place] = _gathered(gradient, f"{prefix}_rows_{place}", made)
        self.expected, self.gathered = made, len(gradients) - len(dense)
        self.formats = tuple(values_of(gradient).dtype.name for gradient in gradients)
        return summed

    def _prepared(self, gradient: Any, variable: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        choice = self.sparse.setdefault(key_of(variable), self._choose(gradient, variable))
        return tf.convert_to_tensor(gradient) if choice.as_dense else merged(gradient)

    def _choose(self, gradient: Any, variable: Any) -> SparseGradient:
        row_bytes = int(math.prod(variable.shape[1:])) * gradient.values.dtype.size
        dense = int(math.prod(variable.shape)) * gradient.values.dtype.size
        rows = _rows(gradient.indices, self.batch)
        gathered = None if rows is None else rows * self.size * (row_bytes + gradient.indices.dtype.size)
        smaller = dense <= (UNKNOWN_ROWS_BYTES if gathered is None else gathered)
        as_dense = {"auto": smaller, "always": True, "never": False}[self.settings.sparse_as_dense]
        return SparseGradient(str(getattr(variable, "path", variable.name)), dense, rows, gathered, as_dense)

    def _groups(self, gradients: Sequence[Any], dense: Sequence[int]) -> list[list[int]]:
        """Places of dense gradients that are reduced by one operation, which takes one dtype only."""
        if self.settings.groups is None:
            return [[place] for place in dense]
        found: list[list[int]] = []
        for dtype in dict.fromkeys(gradients[place].dtype for place in dense):
            places = [place for place in dense if gradients[place].dtype == dtype]
            found += _parts(places, min(self.settings.groups, len(places)))
        return found

    def _sum(self, tensors: list[Any], name: str, made: dict[str, int]) -> list[Any]:
        factor = self.settings.predivide_factor
        # Gradients come divided by the number of ranks; a smaller divisor before the sum leaves the rest for after it.
        before = 1.0 if factor is None else self.size / factor
        given = {
            "op": hvd.Sum,
            "name": name,
            "ignore_name_scope": True,
            "prescale_factor": before,
            "postscale_factor": 1 / before,
        }
        dtype = tensors[0].dtype.name
        if self.settings.groups is None:
            made[f"HorovodAllreduce[{dtype}]"] = made.get(f"HorovodAllreduce[{dtype}]", 0) + 1
            return [hvd.allreduce(tensors[0], **given)]
        made[f"HorovodGroupedAllreduce[{dtype}]"] = made.get(f"HorovodGroupedAllreduce[{dtype}]", 0) + 1
        return list(hvd.grouped_allreduce(tensors, **given))

    def _call(self) -> int:
        """Number of this call in the graph that is being traced: two optimisers of a step need names of their own."""
        if tf.executing_eagerly():
            return 0
        graph = tf.compat.v1.get_default_graph()
        self._calls[graph] = self._calls.get(graph, -1) + 1
        return self._calls[graph]


def reduction_of(all_reduce: Optional[AllReduce]) -> Optional[HorovodReduction]:
    """The reduction that an all-reduce belongs to; None where it is another's."""
    owner = None if all_reduce is None else getattr(all_reduce.sum_over_ranks, "__self__", None)
    return owner if isinstance(owner, HorovodReduction) else None


def _parts(places: list[int], number: int) -> list[list[int]]:
    """Consecutive parts of a list, whose lengths differ by one at most."""
    ends = [len(places) * part // number for part in range(number + 1)]
    return [places[begin:end] for begin, end in zip(ends, ends[1:])]


def merged(gradient: Any) -> Any:
    """A sparse gradient in which every row occurs once."""
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _gathered(gradient: Any, name: str, made: dict[str, int]) -> Any:
    """The rows of all ranks; merged where the dtype has room for the sums."""
    for tensor in (gradient.values, gradient.indices):
        key = f"HorovodAllgather[{tensor.dtype.name}]"
        made[key] = made.get(key, 0) + 1
    values = hvd.allgather(gradient.values, name=f"{name}_values", ignore_name_scope=True)
    indices = hvd.allgather(gradient.indices, name=f"{name}_indices", ignore_name_scope=True)
    slices = tf.IndexedSlices(values, indices, gradient.dense_shape)
    return slices if values.dtype.size < 4 else merged(slices)


def _rows(indices: Any, batch: Optional[int]) -> Optional[int]:
    """Rows that a gradient of a batch names at most, the same row as often as it is named; None where open.

    TensorFlow makes one dimension of the ids that a layer was called with, so the shape before that is looked at.
    """
    if batch is None or isinstance(indices, tf.__internal__.EagerTensor):
        return None  # the rows of this one batch may be others on another rank
    operation = indices.op
    if operation.type == "ConcatV2":  # a variable that is looked up more than once in a step
        parts = [_rows(part, batch) for part in operation.inputs[:-1]]
        return None if None in parts else sum(part for part in parts if part is not None)
    shape = operation.inputs[0].shape if operation.type == "Reshape" else indices.shape
    if shape.rank is None or shape.rank < 2 or any(size is None for size in shape[1:]):
        return None
    return batch * int(math.prod(shape[1:]))
