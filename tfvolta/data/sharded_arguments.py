"""The arguments of a ``fit`` whose data are divided between workers."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.data.arguments import all_arrays, as_dataset
from tfvolta.data.sharding import Sharding, shard
from tfvolta.data.share import share_of_batches

_ARRAYS = "Each of {} workers reads all rows of the arrays and keeps its share of every batch, as Keras divides arrays."
_UNSEEDED = (
    " They are shuffled without a seed, so workers draw in different orders and a row may come twice in an epoch or "
    "not at all: set run.seed."
)
_OTHER = "The data are of kind {}, which nothing divides: each worker reads all that its script gives."


def divided_by_strategy(arguments: dict[str, Any], workers: int, policy: str) -> tuple[dict[str, Any], Sharding]:
    """Sets how TensorFlow divides the data of a ``fit`` between the workers of a strategy.

    Args:
        arguments: Arguments of ``fit`` by name; ``validation_data`` are divided in the same way.
        workers: Number of workers.
        policy: ``auto``, ``file``, ``data`` or ``off``.

    Raises:
        ConfigError: ``file`` was asked for and there are fewer files than workers.
    """
    import tensorflow as tf

    changed = dict(arguments)
    x = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        changed["x"], sharding = shard(x, workers, policy)
    elif all_arrays(tf.nest.flatten(x)):
        from tfvolta.bridge import data_order

        message = _ARRAYS.format(workers)
        if data_order.of_arrays(arguments.get("shuffle", True)) == data_order.UNSEEDED:
            message += _UNSEEDED
        sharding = Sharding("data", message)
    else:
        sharding = Sharding("", _OTHER.format(type(x).__name__))
    validation = arguments.get("validation_data")
    if isinstance(validation, tf.data.Dataset):
        changed["validation_data"] = shard(validation, workers, "auto" if policy == "file" else policy)[0]
    return changed, sharding


def divided_between_ranks(
    arguments: dict[str, Any], rank: int, size: int, floatx: str, seed: int
) -> tuple[dict[str, Any], Sharding]:
    """Gives each of several ranks its share of every batch of a ``fit``.

    Arrays become a data set that all ranks shuffle alike. Validation data are left as they are: every rank validates
    on all of them, with the same result.

    Args:
        arguments: Arguments of ``fit`` by name.
        rank: Number of this rank.
        size: Number of ranks.
        floatx: Keras's default dtype, to which Keras casts arrays of floating numbers.
        seed: For the order of arrays; the same on all ranks.
    """
    import tensorflow as tf

    x = arguments.get("x")
    changed: Optional[dict[str, Any]] = dict(arguments)
    if not isinstance(x, tf.data.Dataset):
        changed = as_dataset(arguments, floatx, seed) if all_arrays(tf.nest.flatten(x)) else None
    if changed is None:
        return arguments, Sharding("", _OTHER.format(type(x).__name__))
    changed["x"], sharding = share_of_batches(changed["x"], rank, size)
    return changed, sharding
