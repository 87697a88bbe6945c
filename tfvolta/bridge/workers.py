"""What a strategy is, for every Keras: whether it spans processes, which of them this one is, and what XLA can do."""

from __future__ import annotations

from typing import Any


def spans_workers(strategy: Any) -> bool:
    """Whether the replicas of a strategy live in several processes that train in step (MultiWorkerMirrored)."""
    extended = getattr(strategy, "extended", None)
    return bool(getattr(extended, "_in_multi_worker_mode", bool)()) and hasattr(extended, "_cross_device_ops")


def is_chief(strategy: Any) -> bool:
    """Whether this process writes what is written once; True for every strategy of one process."""
    return bool(strategy.extended.should_checkpoint)


def can_compile_replicas(strategy: Any) -> bool:
    """Whether the step of each of several replicas can be compiled by itself; other strategies merge replicas in it."""
    import tensorflow as tf

    kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    return isinstance(strategy, kinds) and int(strategy.num_replicas_in_sync) > 1
