"""The arguments of a ``fit`` whose sequences are batched by their lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

from tfvolta.data.arguments import all_arrays, as_dataset
from tfvolta.data.sequences import SequenceSettings, sequence_batches
from tfvolta.errors import ConfigError
from tfvolta.knobs.drop_remainder import DataChange


def in_sequence_batches(
    arguments: dict[str, Any], settings: SequenceSettings, floatx: str, seed: int
) -> tuple[dict[str, Any], DataChange]:
    """Replaces the data of a ``fit`` by batches of few shapes; validation data stay as they are.

    Args:
        arguments: Arguments of ``fit`` by name.
        settings: How sequences are batched.
        floatx: Keras's default dtype, to which Keras casts arrays of floating numbers.
        seed: For the order of arrays.

    Returns:
        The arguments for ``fit``, and what was changed or why nothing could be.

    Raises:
        ConfigError: The data are sequences that the settings do not fit.
    """
    import tensorflow as tf

    changed = dict(arguments)
    x = arguments.get("x")
    if arguments.get("steps_per_epoch"):
        return arguments, DataChange(False, "steps_per_epoch counts the batches of the script, which are others.")
    if arguments.get("class_weight"):
        return arguments, DataChange(False, "class_weight and the weights of pieces cannot both be given to Keras.")
    if not isinstance(x, tf.data.Dataset):
        if not all_arrays(tf.nest.flatten(x)):
            return arguments, DataChange(False, f"The data are of kind {type(x).__name__}, which has no rows to take.")
        as_batches = as_dataset(arguments, floatx, seed)
        if as_batches is None:
            return arguments, DataChange(False, "One sample_weight stands for several targets.")
        changed = as_batches
    elif x.cardinality() == tf.data.INFINITE_CARDINALITY:
        return arguments, DataChange(False, "The data set has no end, so that an epoch has no number of batches.")
    try:
        changed["x"], report = sequence_batches(changed["x"], _batched(changed["x"], settings))
    except ConfigError as error:
        raise ConfigError(f"sequences: {error.summary}", error.problems) from error
    return changed, DataChange(True, report.sentence())


def _batched(dataset: Any, settings: SequenceSettings) -> SequenceSettings:
    """What makes elements out of sight makes batches, for that is what ``fit`` takes."""
    from tfvolta.bridge import sequence_data

    unknown = settings.batched is None and sequence_data.is_batched(dataset) is None
    return dataclasses.replace(settings, batched=True) if unknown else settings
