"""All-reduce by TensorFlow's collectives, for every Keras: in packs of a size, sparse gradients too, and on record.

A strategy reduces a batch of gradients in one of two ways. ``_batch_reduce_to`` serves replicas that are merged; it
takes the strategy's own communication options into account. ``_replica_ctx_all_reduce`` serves those of a step that
XLA compiles, which are not merged. It forgets the strategy's options, so that ``bytes_per_pack`` has no effect there;
here it has. It would gather IndexedSlices (the gradients of an embedding), for which XLA has no kernel
(CollectiveGatherV2); here they become dense before they are reduced.

Source: tensorflow/python/distribute/mirrored_strategy.py and collective_all_reduce_strategy.py,
``_replica_ctx_all_reduce``; cross_device_ops.py, ``CollectiveAllReduce._all_reduce``; TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.all_reduce_record import Reduction, note, operations

_records: weakref.WeakKeyDictionary[Any, list[Reduction]] = weakref.WeakKeyDictionary()


def install(strategy: Any, bytes_per_pack: int = 0) -> bool:
    """Corrects the all-reduce of a strategy that reduces by collectives; False for others, and where it was done.

    Args:
        strategy: MirroredStrategy or MultiWorkerMirroredStrategy, before its first model is traced.
        bytes_per_pack: Size that a pack of gradients has at least; 0 leaves what the strategy was made with.
    """
    extended = strategy.extended
    if strategy in _records or not hasattr(extended, "_replica_ctx_all_reduce") or not _reduces(extended):
        return False
    records = _records.setdefault(strategy, [])
    if bytes_per_pack:
        own = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
        extended._communication_options = extended._communication_options.merge(own)
    _record_merged(extended, records)
    _correct_unmerged(extended, records)
    return True


def records_of(strategy: Any) -> Optional[list[Reduction]]:
    """What the strategy has reduced so far, in the order in which it was traced; None where it was not corrected."""
    return _records.get(strategy)


def bytes_per_pack(strategy: Any) -> int:
    """The size that a pack has at least; 0 is one pack for all."""
    return int(strategy.extended._communication_options.bytes_per_pack)


def _reduces(extended: Any) -> bool:
    return hasattr(extended, "_communication_options") and int(extended._num_replicas_in_sync) > 1


def _record_merged(extended: Any, records: list[Reduction]) -> None:
    own = extended._batch_reduce_to

    def batch_reduce_to(reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        pairs, before = list(value_destination_pairs), operations()
        result = own(reduce_op, pairs, options)
        records.append(note([value for value, _ in pairs], before, len(extended.worker_devices)))
        return result

    extended._batch_reduce_to = batch_reduce_to


def _correct_unmerged(extended: Any, records: list[Reduction]) -> None:
    own = extended._replica_ctx_all_reduce

    def replica_ctx_all_reduce(reduce_op: Any, value: Any, options: Any = None) -> Any:
        options = extended._communication_options.merge(options)
        if tf.executing_eagerly() or extended._use_merge_call():
            return own(reduce_op, value, options)  # which ends in the merged way where replicas can be merged
        value = tf.nest.map_structure(_dense, value)
        flat, before = tf.nest.flatten(value), operations()
        result = own(reduce_op, value, options)
        records.append(note(flat, before))
        return result

    extended._replica_ctx_all_reduce = replica_ctx_all_reduce


def _dense(value: Any) -> Any:
    """IndexedSlices as a tensor; the rows that they name twice are added up."""
    if not isinstance(value, tf.IndexedSlices):
        return value
    return tf.math.unsorted_segment_sum(value.values, value.indices, value.dense_shape[0])
