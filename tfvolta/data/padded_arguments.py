"""The arguments of a ``fit`` with the last, smaller batch filled up."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.data.arguments import as_dataset
from tfvolta.data.padding import padded_batches
from tfvolta.errors import ConfigError
from tfvolta.knobs.drop_remainder import DataChange

_PARTS = ("x", "y", "sample_weight")


def with_filled_remainder(
    arguments: dict[str, Any], model: Any, floatx: str, seed: Optional[int]
) -> tuple[dict[str, Any], DataChange]:
    """Replaces the data of a ``fit`` by batches of one size that hold every row; the model learns what filled rows are.

    Arrays become a data set with the shuffling that Keras does to arrays. Data for validation stay as they are.

    Args:
        arguments: Arguments of ``fit`` by name.
        model: The compiled model that is trained.
        floatx: Keras's default dtype, to which Keras casts arrays of floating numbers.
        seed: For the order of the rows of arrays, or None.

    Returns:
        The arguments for ``fit``, and what was changed or why nothing could be.
    """
    from tfvolta.bridge import datasets

    if arguments.get("class_weight") is not None:
        return arguments, DataChange(False, "class_weight makes weights of its own, in which filled rows have none.")
    given = _with_dataset(arguments, floatx, seed)
    if isinstance(given, str):
        return arguments, DataChange(False, given)
    found = datasets.batching(given["x"])
    try:
        padded = padded_batches(given["x"], model)
    except ConfigError as error:
        return arguments, DataChange(False, f"{'; '.join(problem.received for problem in error.problems)}.")
    if padded is given["x"] or (found is not None and found.remainder == 0):
        return {**given, "x": padded}, DataChange(True, "Every batch has the same size already.")
    size = datasets.static_batch(padded.element_spec)
    rows = f" of {found.remainder} rows" if found is not None and found.remainder else ""
    return {**given, "x": padded}, DataChange(True, f"A batch{rows} that is smaller than {size} rows is filled up.")


def _with_dataset(arguments: dict[str, Any], floatx: str, seed: Optional[int]) -> Any:
    """The arguments with a data set for ``x``, or why there is none."""
    import numpy as np
    import tensorflow as tf

    if isinstance(arguments.get("x"), tf.data.Dataset):
        return arguments
    parts = [part for name in _PARTS for part in tf.nest.flatten(arguments.get(name)) if part is not None]
    if not parts or not all(isinstance(part, (np.ndarray, tf.Tensor)) and part.shape for part in parts):
        kind = type(arguments.get("x")).__name__
        return f"The data are of kind {kind}, whose batches are not known before they come."
    made = as_dataset(arguments, floatx, seed)
    if made is None:
        return "The arrays cannot become a data set: steps_per_epoch, or one sample_weight for several targets."
    return made
