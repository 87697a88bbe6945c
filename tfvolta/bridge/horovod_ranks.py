"""Horovod's ranks in this process; the module needs Horovod, so it is imported only where the plan asks for it.

Only ``horovod.tensorflow`` is used, never ``horovod.tensorflow.keras``: the latter takes ``keras.backend`` of whatever
Keras is installed, so that it fails under tf_keras ("module 'keras.backend' has no attribute 'constant'") and under
Keras 3.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Optional

import horovod.tensorflow as hvd
import tensorflow as tf

_KERAS_PART = "horovod.tensorflow.keras"


@dataclasses.dataclass(frozen=True)
class Ranks:
    """This process among all.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        local_rank: Number of this process on its machine.
        local_size: Processes on its machine.
        controller: ``gloo`` or ``mpi``: what the processes agree through.
        nccl: Whether this Horovod was built with NCCL.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    controller: str
    nccl: bool


def start() -> Ranks:
    """Initialises Horovod, once in a process; it starts no GPU."""
    if not hvd.is_initialized():
        hvd.init()
    return ranks()


def ranks() -> Ranks:
    """This process among all, after ``start``."""
    return Ranks(
        rank=int(hvd.rank()),
        size=int(hvd.size()),
        local_rank=int(hvd.local_rank()),
        local_size=int(hvd.local_size()),
        controller="mpi" if hvd.mpi_enabled() else "gloo",
        nccl=bool(hvd.nccl_built()),
    )


def broadcast(variables: list[Any]) -> None:
    """Gives every rank the values of rank 0; all ranks call it with variables of the same shapes in the same order."""
    if variables:
        hvd.broadcast_variables([getattr(variable, "_variable", variable) for variable in variables], root_rank=0)


def checksums(variables: list[Any]) -> list[int]:
    """One number for each variable, made of all its bits on the device where it is.

    Equal values have equal numbers, and values that differ in one element have different ones. The numbers are sums of
    integers, which do not depend on the order of addition.
    """
    if not variables:
        return []
    sums = _sums([tf.convert_to_tensor(variable) for variable in variables])
    return [int(value) for value in sums.numpy()]


@tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sums(tensors: list[Any]) -> Any:
    return tf.stack([tf.reduce_sum(tf.cast(_bits(tensor), tf.int64)) for tensor in tensors])


def _bits(tensor: Any) -> Any:
    if not tensor.dtype.is_floating:
        return tensor
    return tf.bitcast(tensor, {2: tf.int16, 4: tf.int32, 8: tf.int64}[tensor.dtype.size])


def local_passes(optimizer: Any) -> Optional[int]:
    """Batches that ``hvd.DistributedOptimizer`` adds up on each rank before it reduces; None for any other optimiser.

    Source: ``create_distributed_optimizer`` in ``horovod/_keras/__init__.py``, Horovod 0.28.
    """
    if not hasattr(type(optimizer), "register_local_var"):
        return None
    helper = getattr(optimizer, "_agg_helper", None)
    return 1 if helper is None else int(helper.backward_passes_per_step)


def mend_callbacks(keras: Any) -> bool:
    """Gives Horovod's own Keras callbacks the backend of tf_keras; False where a script did not import them.

    ``horovod.tensorflow.keras`` binds ``K`` to ``keras.backend``, which beside TensorFlow 2.16 and later is Keras 3's.

    Args:
        keras: The tf_keras package.
    """
    module: Optional[Any] = sys.modules.get(_KERAS_PART)
    if module is None:
        return False
    module.K = module.callbacks.K = keras.backend
    return True
