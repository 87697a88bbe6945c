"""A data set that can hold batches back until several are there, and says how long they were waited for.

The same batches come in the same order. For a stock that is asked for, its batches are all fetched before the first of
them is handed on, so that training runs on them without waiting. ``group_by_window`` does it, with windows of one
element at all other times. Counts and times lie in variables of TensorFlow's runtime on the host, made without
``tf.Variable``, which a strategy would copy to its replicas.
Source: tensorflow/core/kernels/data/group_by_window_dataset_op.cc, the same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import tensorflow as tf

from tfvolta.bridge import pipeline

_NEVER = 2**62


@dataclasses.dataclass(frozen=True)
class Fetched:
    """What a stocked data set has seen so far.

    Attributes:
        batches: Batches fetched, by whatever iterators.
        seconds: Time for which they were waited for, by whoever asks this data set.
        first_at: When the first batch of the last stock came; seconds since 1970, 0 before there was one.
        full_at: When the last batch of the last full stock came.
    """

    batches: int
    seconds: float
    first_at: float
    full_at: float


class StockedInput:
    """Holds batches of a data set back when told to.

    Attributes:
        dataset: The data set to be iterated in place of the other.
    """

    def __init__(self, dataset: Any):
        with tf.init_scope(), tf.device("/CPU:0"):
            self._number = _Cell(tf.int64, 0)
            self._stock = _Cell(tf.int64, [_NEVER, 0])  # number of its first batch, and how many there are
            self._seconds = _Cell(tf.float64, 0.0)
            self._first_at = _Cell(tf.float64, 0.0)
            self._full_at = _Cell(tf.float64, 0.0)
            self.dataset = self._stocked(dataset)

    def hold(self, batches: int, ahead: int = 0) -> None:
        """Has so many batches fetched before the first of them is handed on.

        Args:
            batches: How many.
            ahead: Batches to let pass before; more than none where another thread fetches meanwhile.
        """
        with tf.init_scope(), tf.device("/CPU:0"):
            self._stock.write([int(self._number.read()) + ahead, batches])

    def let_go(self) -> None:
        """Holds nothing back from now on."""
        with tf.init_scope(), tf.device("/CPU:0"):
            self._stock.write([_NEVER, 0])

    def fetched(self) -> Fetched:
        """What was fetched so far, by a look at variables on the host."""
        with tf.init_scope(), tf.device("/CPU:0"):
            times = (float(cell.read()) for cell in (self._seconds, self._first_at, self._full_at))
            return Fetched(int(self._number.read()), *times)

    def _stocked(self, dataset: Any) -> Any:
        # What TensorFlow would fetch ahead behind the pipeline is fetched ahead in front of the stock.
        injects = pipeline.injects_prefetch(dataset)
        data = dataset.prefetch(tf.data.AUTOTUNE) if injects else dataset
        asked = tf.data.Dataset.range(_NEVER).map(lambda _: tf.timestamp())
        stocked = tf.data.Dataset.zip((asked, data)).group_by_window(
            self._key, lambda key, window: window, window_size_func=self._size
        )
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        plain = stocked.map(self._batch).with_options(options)
        known = int(dataset.cardinality()) != tf.data.UNKNOWN_CARDINALITY
        return plain.apply(tf.data.experimental.assert_cardinality(dataset.cardinality())) if known else plain

    def _batch(self, asked: Any, batch: Any) -> Any:
        """Leaves the time away. A function without state would be called for several batches ahead of who asks."""
        del asked
        self._number.read()
        return batch

    def _key(self, asked: Any, batch: Any) -> Any:
        """Counts a batch that came: 0, or for one that is held back the key of its stock."""
        del batch
        now = tf.timestamp()
        number, stock = self._number.read(), self._stock.read()
        first, last = stock[0], stock[0] + stock[1] - 1
        self._number.write(number + 1)
        self._seconds.write(self._seconds.read() + now - asked)
        tf.cond(tf.equal(number, first), lambda: self._first_at.write(now), tf.no_op)
        tf.cond(tf.equal(number, last), lambda: self._full_at.write(now), tf.no_op)
        return tf.where((number >= first) & (number <= last), first + 1, tf.constant(0, tf.int64))

    def _size(self, key: Any) -> Any:
        """Batches to wait for: of a stock those that are left, should an iterator have ended inside it."""
        stock = self._stock.read()
        left = stock[0] + stock[1] - self._number.read() + 1
        return tf.where(tf.equal(key, 0), tf.constant(1, tf.int64), tf.maximum(left, 1))


class _Cell:
    """A value in TensorFlow's runtime; written and read inside and outside of graphs."""

    def __init__(self, dtype: Any, value: Any):
        self._dtype = dtype
        first = tf.convert_to_tensor(value, dtype)
        self._handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=first.shape, shared_name=f"tfvolta_input_{uuid.uuid4().hex}", container=""
        )
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=first)

    def read(self) -> Any:
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)

    def write(self, value: Any) -> Any:
        return tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.convert_to_tensor(value, self._dtype))
