"""Gradients on their way between replicas and ranks: as float16 on the wire, in their own dtype before and after.

What float16 can do to a gradient, and what is done about it:

- Small ones become zero. With loss scaling the values that travel are those of the scaled loss; an optimiser that is
  given gradients in their true size has them multiplied by the scale again. Scales are powers of two, so that is exact.
- Large ones become infinite, each by itself or in the sum. Where the optimiser looks for infinities after the reduction
  (a loss scale), that is what should happen: every replica sees it, skips the step, and the scale falls. Elsewhere
  finite values are limited so that their sum over all replicas stays finite. Infinities and NaN pass as they are.
- A sum over ranks is divided before it is made. Over the replicas of a strategy Keras has divided the loss already.

Sparse gradients (``IndexedSlices``) are gathered and not summed on the way: their values travel as float16, their
indices as they are, and rows are added up in float32 afterwards.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge.reduction import AllReduce

SCOPE = "tfvolta_all_reduce"  # operations that reduce gradients have it in their names
_MOST = float(tf.float16.max)


@dataclasses.dataclass(frozen=True)
class Wire:
    """How gradients travel in one update.

    Attributes:
        compress: float32 gradients travel as float16.
        checked: Whether the optimiser looks for infinities after the reduction and skips the step.
        scale: Factor that brings the gradients to the size of the scaled loss; None where they have it.
        all_reduce: In place of the strategy's.
    """

    compress: bool = False
    checked: bool = False
    scale: Optional[Any] = None
    all_reduce: Optional[AllReduce] = None

    @property
    def compresses(self) -> bool:
        """Whether values are cast here; an all-reduce of its own may do it by itself."""
        return self.compress and not (self.all_reduce is not None and self.all_reduce.compresses)


def parties(all_reduce: Optional[AllReduce]) -> int:
    """Over how many shares a gradient is summed; in replica context."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync) if all_reduce is None else all_reduce.ranks


def largest(shares: int) -> float:
    """Limit of each value of a dense gradient, so that a float16 sum of so many shares stays finite.

    Half of float16's range is left for rounding up on the way: (1 + 2**-11) ** shares is below 2 for 1,000 shares.
    """
    return 32768.0 / shares


def reduce(gradients: list[Any], wire: Wire) -> list[Any]:
    """Gradients summed over the replicas of the strategy, or averaged over ranks; in replica context.

    Args:
        gradients: Tensors and ``IndexedSlices`` without None.
        wire: How they travel.

    Returns:
        The same in order, dtype and size (true or scaled); one replica alone gets what it gave.
    """
    shares = parties(wire.all_reduce)
    if not gradients or shares == 1:
        return gradients
    with tf.name_scope(SCOPE):
        sent = [_sent(gradient, wire, shares) for gradient in gradients]
        received = _exchanged(sent, wire.all_reduce)
        return [_received(value, before, wire) for value, before in zip(received, gradients)]


def wire_bytes(gradients: list[Any], wire: Wire) -> Optional[int]:
    """Bytes that one replica puts on the wire for gradients; None where a shape is open (rows of sparse ones)."""
    total = 0
    for gradient in gradients:
        values = values_of(gradient)
        if not values.shape.is_fully_defined():
            return None
        size = 2 if wire.compresses and values.dtype == tf.float32 else values.dtype.size
        total += int(values.shape.num_elements()) * size
        if isinstance(gradient, tf.IndexedSlices):
            total += int(values.shape[0]) * gradient.indices.dtype.size
    return total


def values_of(gradient: Any) -> Any:
    """The values of a gradient, sparse or dense."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def mapped(function: Callable[[Any], Any], gradient: Any) -> Any:
    """A gradient with its values changed; slices stay slices."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(tf.convert_to_tensor(gradient))


def _sent(gradient: Any, wire: Wire, shares: int) -> Any:
    ranks = 1 if wire.all_reduce is None else wire.all_reduce.ranks
    limit = _MOST if isinstance(gradient, tf.IndexedSlices) else largest(shares)

    def outgoing(values: Any) -> Any:
        values = values / tf.cast(ranks, values.dtype) if ranks > 1 else values
        if not wire.compresses or values.dtype != tf.float32:
            return values
        if wire.scale is not None:
            values = values * tf.cast(wire.scale, tf.float32)
        if not wire.checked:
            limited = tf.clip_by_value(values, -limit, limit)
            values = tf.where(tf.math.is_finite(values), limited, values)
        return tf.cast(values, tf.float16)

    return mapped(outgoing, gradient)


def _received(gradient: Any, before: Any, wire: Wire) -> Any:
    dtype = values_of(before).dtype

    def incoming(values: Any) -> Any:
        if values.dtype == dtype:
            return values
        values = tf.cast(values, dtype)
        return values / tf.cast(wire.scale, dtype) if wire.scale is not None else values

    return mapped(incoming, gradient)


def _exchanged(sent: list[Any], all_reduce: Optional[AllReduce]) -> list[Any]:
    if all_reduce is not None:
        return list(all_reduce.sum_over_ranks(sent))
    context = tf.distribute.get_replica_context()
    received: list[Any] = [None] * len(sent)
    # Packs are concatenated, so each dtype is reduced by itself; float32 weights alone make one group.
    for dtype in dict.fromkeys(values_of(gradient).dtype for gradient in sent):
        places = [place for place, gradient in enumerate(sent) if values_of(gradient).dtype == dtype]
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, [sent[place] for place in places])
        for place, value in zip(places, reduced):
            received[place] = value
    return received
