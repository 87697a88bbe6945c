"""The arguments of a ``fit`` with batches of another size."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.errors import ConfigError, Problem
from tfvolta.knobs.drop_remainder import DataChange

_PARTS = ("x", "y", "sample_weight")
_PADDED = ("_PaddedBatchDataset", "_DenseToRaggedDataset", "_GroupByWindowDataset")
_DEFAULT_BATCH = 32  # Keras's


class LargerThanDataError(ConfigError):
    """A batch that is larger than all the data.

    Attributes:
        rows: How many rows there are.
    """

    def __init__(self, rows: int, size: int):
        self.rows = rows
        problem = Problem(
            where="fit.batch_size",
            expected=f"at most the {rows} rows that fit is given to train with",
            received=str(size),
            why="batch larger than the data: every epoch would be one smaller batch, and the size asked for is "
            "never trained",
            fix=f"set fit.batch_size to {rows} or less",
        )
        super().__init__("A batch is larger than the data.", [problem])


def in_batches_of(arguments: dict[str, Any], size: int) -> tuple[dict[str, Any], DataChange]:
    """Replaces the batches of a ``fit`` by batches of another size.

    Args:
        arguments: Arguments of ``fit`` by name.
        size: Rows of a batch.

    Returns:
        The arguments for ``fit``, and what was changed or why nothing could be.

    Raises:
        LargerThanDataError: The data have fewer rows than one batch.
    """
    import tensorflow as tf

    x = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return _of_dataset(arguments, x, size)
    parts = [part for name in _PARTS for part in tf.nest.flatten(arguments.get(name)) if part is not None]
    if not _are_rows(parts):
        kind = type(x).__name__
        return arguments, DataChange(False, f"Batches of data of kind {kind} are made by Python code of the script's.")
    rows = _kept_rows(arguments, int(parts[0].shape[0]))
    _check_rows(rows, size)
    former = int(arguments.get("batch_size") or _DEFAULT_BATCH)
    changed = {**arguments, "batch_size": size, **_steps(arguments, former, size)}
    if arguments.get("validation_data") is not None or arguments.get("validation_split"):
        changed["validation_batch_size"] = arguments.get("validation_batch_size") or former
    return changed, DataChange(True, f"{rows} rows come in batches of {size} instead of {former}.")


def batch_of(arguments: dict[str, Any]) -> Optional[int]:
    """Rows of a batch as a script's ``fit`` has them; None where its data do not say."""
    import tensorflow as tf

    from tfvolta.bridge import datasets

    x = arguments.get("x")
    if not isinstance(x, tf.data.Dataset):
        return int(arguments.get("batch_size") or _DEFAULT_BATCH) if _are_rows(tf.nest.flatten(x)) else None
    found = datasets.batching(x)
    return found.batch if found is not None else datasets.static_batch(x.element_spec)


def _of_dataset(arguments: dict[str, Any], dataset: Any, size: int) -> tuple[dict[str, Any], DataChange]:
    import tensorflow as tf

    from tfvolta.bridge import datasets

    names = [type(each).__name__ for each in datasets.chain(dataset)]
    hidden = [name for name in names if name in _PADDED]
    if hidden:
        return arguments, DataChange(False, f"{hidden[0]} puts rows of different shapes together.")
    found = datasets.batching(dataset)
    if not _same_shapes(dataset):
        return arguments, DataChange(False, "The data set's elements have other open sizes than the number of rows.")
    former = batch_of(arguments)
    if former == size:
        return arguments, DataChange(True, f"Batches have {size} rows already.")
    if found is not None and found.rows is not None:
        _check_rows(found.rows, size)
    whole = datasets.static_batch(dataset.element_spec) is not None  # smaller batches were left out
    changed = dataset.rebatch(size, drop_remainder=whole)
    number = _number_of_batches(dataset, None if found is None else found.rows, former, size)
    if number is not None:
        changed = changed.apply(tf.data.experimental.assert_cardinality(number))
    steps = _steps(arguments, former, size) if former else {}
    if arguments.get("steps_per_epoch") and not former:
        return arguments, DataChange(False, "steps_per_epoch counts batches whose size is not known.")
    was = f" instead of {former}" if former else ""
    return {**arguments, **steps, "x": changed}, DataChange(
        True, f"The data set's rows come in batches of {size}{was}."
    )


def _number_of_batches(dataset: Any, rows: Optional[int], former: Optional[int], size: int) -> Optional[int]:
    """Batches of another size; None where they cannot be told.

    ``rebatch`` forgets how many there are, and Keras 3 warns at the end of data without a length.

    Args:
        dataset: In batches of the former size.
        rows: Rows of one pass, where the data set says so.
        former: Rows of a batch.
        size: Rows of a batch from now on.
    """
    from tfvolta.bridge import datasets

    batches = int(dataset.cardinality())
    if batches < 0 or not former:
        return None
    if datasets.static_batch(dataset.element_spec) is not None:
        return batches * former // size
    return -(-rows // size) if rows is not None and batches == -(-rows // former) else None


def _are_rows(parts: list[Any]) -> bool:
    """Whether there are parts, and each is an array or tensor of rows."""
    import tensorflow as tf

    return bool(parts) and all((hasattr(part, "shape") and tf.is_tensor(part)) or _is_array(part) for part in parts)


def _is_array(part: Any) -> bool:
    return type(part).__module__ == "numpy" and len(part.shape) > 0


def _same_shapes(dataset: Any) -> bool:
    """Whether the elements leave nothing open but the number of rows."""
    import tensorflow as tf

    specs = tf.nest.flatten(dataset.element_spec)
    dense = all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs)
    return dense and all(None not in spec.shape.as_list()[1:] for spec in specs)


def _steps(arguments: dict[str, Any], former: int, size: int) -> dict[str, Any]:
    """As many rows in an epoch as before, at least one batch."""
    steps: Optional[int] = arguments.get("steps_per_epoch")
    return {} if not steps else {"steps_per_epoch": max(1, steps * former // size)}


def _kept_rows(arguments: dict[str, Any], rows: int) -> int:
    """Rows that are left for training."""
    share = arguments.get("validation_split") or 0.0
    return rows if arguments.get("validation_data") is not None else int(rows * (1.0 - share))


def _check_rows(rows: int, size: int) -> None:
    if rows < size:
        raise LargerThanDataError(rows, size)
