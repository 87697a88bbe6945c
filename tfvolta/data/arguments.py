"""The arguments of a ``fit`` without the last, smaller batch."""

from __future__ import annotations

import math
from typing import Any, Optional

from tfvolta.data.static import static_batches
from tfvolta.errors import ConfigError
from tfvolta.knobs.drop_remainder import DataChange

_PARTS = ("x", "y", "sample_weight")
_DEFAULT_BATCH = 32  # Keras's, where fit is given arrays and no batch_size


def without_remainder(arguments: dict[str, Any], floatx: str) -> tuple[dict[str, Any], DataChange]:
    """Replaces the data of a ``fit`` by batches of one size.

    Arrays become a data set with the shuffling that Keras does to arrays: all rows anew in each epoch, or whole batches
    with ``shuffle="batch"``. What ``validation_split`` sets apart becomes ``validation_data``.

    Args:
        arguments: Arguments of ``fit`` by name.
        floatx: Keras's default dtype, to which Keras casts arrays of floating numbers.

    Returns:
        The arguments for ``fit``, and what was changed or why nothing could be.
    """
    import tensorflow as tf

    x = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return _of_dataset(arguments, x)
    parts = [part for name in _PARTS for part in tf.nest.flatten(arguments.get(name))]
    if not all_arrays([part for part in parts if part is not None]):
        kind = type(x).__name__
        return arguments, DataChange(
            False, f"The data are of kind {kind}, whose batches are not known before they come."
        )
    reason = _unsupported(tf, arguments)
    return (arguments, DataChange(False, reason)) if reason else _of_arrays(arguments, floatx)


def _of_dataset(arguments: dict[str, Any], dataset: Any) -> tuple[dict[str, Any], DataChange]:
    from tfvolta.bridge import datasets

    found = datasets.batching(dataset)
    try:
        static = static_batches(dataset)
    except ConfigError as error:
        return arguments, DataChange(False, f"The batch size of the data set is not known: {error.problems[0].why}.")
    if static is dataset or (found is not None and found.remainder == 0):
        return arguments, DataChange(True, "Every batch of the data set has the same size already.")
    if found is not None and found.full_batches == 0:
        why = (
            f"There is no batch of {found.batch} rows to keep: without the smaller ones nothing is left to train with."
        )
        rows = found.remainder
        return arguments, DataChange(False, why, f"choose a batch of {rows} rows or fewer" if rows else "")
    size = datasets.static_batch(static.element_spec)
    left = f" of {found.remainder} rows" if found is not None and found.remainder else ""
    message = f"Batches{left} that are smaller than {size} rows are left out."
    return {**arguments, "x": static}, DataChange(True, message)


def all_arrays(parts: list[Any]) -> bool:
    """Whether there are parts, and each is an array or tensor of rows."""
    import numpy as np
    import tensorflow as tf

    return bool(parts) and all(isinstance(part, (np.ndarray, tf.Tensor)) and len(part.shape) > 0 for part in parts)


def _unsupported(tf: Any, arguments: dict[str, Any]) -> str:
    """Why arrays are left as they are; empty where they can be turned into a data set."""
    if arguments.get("steps_per_epoch"):
        return "steps_per_epoch cuts the arrays into epochs of its own."
    weight = arguments.get("sample_weight")
    if weight is not None and not tf.nest.is_nested(weight) and tf.nest.is_nested(arguments.get("y")):
        return "one sample_weight stands for several targets."
    return ""


def _of_arrays(arguments: dict[str, Any], floatx: str) -> tuple[dict[str, Any], DataChange]:
    import tensorflow as tf

    batch, changed = _batch_size(arguments), _split(tf, {**arguments})
    rows = _rows(tf, changed)
    if rows % batch == 0:
        return arguments, DataChange(True, f"{rows} rows make {rows // batch} whole batches of {batch}.")
    if rows < batch:
        why = f"There are {rows} rows, fewer than one batch of {batch}: without them nothing is left to train with."
        return arguments, DataChange(
            False, why, f"choose a batch of {rows} rows or fewer, such as fit.batch_size={rows}"
        )
    message = f"The last {rows % batch} of {rows} rows of each epoch are left out: {rows // batch} batches of {batch}."
    return _batched(tf, changed, floatx, None, whole=True), DataChange(True, message)


def as_dataset(arguments: dict[str, Any], floatx: str, seed: Optional[int]) -> Optional[dict[str, Any]]:
    """The arguments of a ``fit`` with its arrays as a data set of the same batches, the smaller last one included.

    Args:
        arguments: Arguments of ``fit`` by name.
        floatx: Keras's default dtype, to which Keras casts arrays of floating numbers.
        seed: For the order of the rows, which is another in each epoch; None for another in each run.

    Returns:
        None where the arrays have to stay, as with ``steps_per_epoch``.
    """
    import tensorflow as tf

    if _unsupported(tf, arguments):
        return None
    return _batched(tf, _split(tf, {**arguments}), floatx, seed, whole=False)


def _batch_size(arguments: dict[str, Any]) -> int:
    return int(arguments.get("batch_size") or _DEFAULT_BATCH)


def _rows(tf: Any, arguments: dict[str, Any]) -> int:
    """Rows of the arrays of a ``fit``."""
    return int(tf.nest.flatten([arguments.get(name) for name in _PARTS])[0].shape[0])


def _batched(tf: Any, arguments: dict[str, Any], floatx: str, seed: Optional[int], whole: bool) -> dict[str, Any]:
    """The arguments of a ``fit`` with its arrays as a data set of batches, shuffled as Keras would.

    Args:
        seed: For the order of the rows, or None.
        whole: Whether the smaller last batch is left out.
    """
    batch, rows = _batch_size(arguments), _rows(tf, arguments)
    data = tuple(_tuples(arguments.get(name)) for name in _PARTS)
    while data and data[-1] is None:
        data = data[:-1]
    order = (arguments.get("shuffle", True), seed)
    changed = {
        **arguments,
        **dict.fromkeys((*_PARTS, "batch_size")),
        "x": _gathered(tf, data, rows, batch, order, floatx, whole),
        "shuffle": False,
    }
    if changed.get("validation_data") is not None:
        changed["validation_batch_size"] = changed.get("validation_batch_size") or batch
    return changed


def _split(tf: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Sets the last part of the rows apart for validation, as Keras does before it shuffles."""
    share = arguments.get("validation_split") or 0.0
    if not share or arguments.get("validation_data") is not None:
        return arguments
    parts = [arguments.get(name) for name in _PARTS]
    rows = int(tf.nest.flatten(parts)[0].shape[0])
    kept = math.floor(rows * (1.0 - share))
    if not 0 < kept < rows:
        return arguments  # Keras refuses it in its own words
    halves = [[_cut(tf, part, slice(kept)), _cut(tf, part, slice(kept, None))] for part in parts]
    validation = tuple(second for _, second in halves if second is not None)
    return {
        **arguments,
        **{name: first for name, (first, _) in zip(_PARTS, halves)},
        "validation_data": validation,
        "validation_split": 0.0,
    }


def _cut(tf: Any, part: Any, rows: slice) -> Optional[Any]:
    return None if part is None else tf.nest.map_structure(lambda array: array[rows], part)


def _tuples(structure: Any) -> Any:
    """The same with tuples for lists, which ``tf.data`` would take for tensors."""
    if isinstance(structure, (list, tuple)):
        return tuple(_tuples(part) for part in structure)
    if isinstance(structure, dict):
        return {name: _tuples(part) for name, part in structure.items()}
    return structure


def _gathered(
    tf: Any, data: Any, rows: int, batch: int, order: tuple[Any, Optional[int]], floatx: str, whole: bool
) -> Any:
    """A data set of batches: row numbers are shuffled and batched, and rows are taken by number.

    Args:
        order: Keras's ``shuffle``, and a seed or None.
        whole: Whether the smaller last batch is left out.
    """
    import numpy as np

    def held(array: Any) -> Any:
        floating = isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)
        return tf.convert_to_tensor(array.astype(floatx) if floating else array)

    with tf.device("/CPU:0"):  # the data stay in the host's memory
        tensors = tf.nest.map_structure(held, data)
    shuffle, seed = order
    numbers = tf.data.Dataset.range(rows)
    if shuffle and shuffle != "batch":
        numbers = numbers.shuffle(rows, seed=seed, reshuffle_each_iteration=True)
    numbers = numbers.batch(batch, drop_remainder=whole)
    if shuffle == "batch":
        numbers = numbers.shuffle(max(1, rows // batch), seed=seed, reshuffle_each_iteration=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    taken = numbers.map(
        lambda chosen: tf.nest.map_structure(lambda tensor: tf.gather(tensor, chosen), tensors),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return taken.prefetch(tf.data.AUTOTUNE).with_options(options)
