"""Data of one's own in place of synthetic data: an ``.npz`` file, or a function of a module."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from tfvolta.errors import ConfigError, Problem

_LABELS = "y"


def _unusable(source: str, expected: str, received: str, why: str = "", fix: str = "") -> ConfigError:
    return ConfigError("The data cannot be used.", [Problem(f"--data {source}", expected, received, why, fix)])


def is_function(source: str) -> bool:
    """Whether a source is ``module:function``."""
    return not source.endswith(".npz") and ":" in source


def check(source: str) -> None:
    """Looks at what can be seen without TensorFlow.

    Raises:
        ConfigError: There is no such file, or the source is neither a file nor a function.
    """
    if is_function(source):
        return
    if not source.endswith(".npz"):
        raise _unusable(source, "FILE.npz or module:function", source or "nothing")
    if not os.path.isfile(source):
        raise _unusable(
            source, "a file that exists", "none of that name", fix="np.savez('data.npz', x=images, y=labels)"
        )


def given_dataset(tf: Any, source: str, batch: int, steps: int) -> Any:
    """One epoch of given data, repeated or cut to so many steps.

    Args:
        tf: TensorFlow.
        source: ``FILE.npz`` with an array ``y`` and arrays named as the model's inputs, or one array ``x``; or
            ``module:function``, which is called with the batch size and returns a ``tf.data.Dataset`` of whole batches.
        batch: Examples of a batch.
        steps: Batches of an epoch.

    Raises:
        ConfigError: The data have no such form.
    """
    if is_function(source):
        found = _called(source, batch)
        if not isinstance(found, tf.data.Dataset):
            raise _unusable(source, "a function that returns a tf.data.Dataset", type(found).__name__)
        return found.repeat().take(steps)
    features, labels = arrays(source, batch)
    data = tf.data.Dataset.from_tensor_slices((features, labels)).repeat()
    return data.batch(batch, drop_remainder=True, num_parallel_calls=tf.data.AUTOTUNE).take(steps).prefetch(2)


def _called(source: str, batch: int) -> Any:
    name, _, function = source.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(name), function)(batch)
    except (ImportError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise _unusable(source, "a function of a module that can be imported from here", "none", why) from error
    finally:
        sys.path.remove(os.getcwd())


def arrays(source: str, batch: int) -> tuple[Any, Any]:
    """Features and labels of an ``.npz`` file.

    Raises:
        ConfigError: It has no labels, no features, different numbers of rows, or fewer rows than a batch.
    """
    import numpy as np

    try:
        with np.load(source, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise _unusable(source, "a file that numpy.savez wrote", str(error).splitlines()[0]) from error
    if _LABELS not in found or len(found) < 2:
        raise _unusable(source, "an array y, and x or one array for each input", ", ".join(found) or "no arrays")
    rows = {name: len(array) for name, array in found.items()}
    if len(set(rows.values())) > 1:
        raise _unusable(source, "as many rows in every array", ", ".join(f"{n}: {k}" for n, k in rows.items()))
    if rows[_LABELS] < batch:
        raise _unusable(source, f"at least one batch of {batch} rows", f"{rows[_LABELS]} rows", fix="--batch")
    labels = found.pop(_LABELS)
    return (found["x"] if set(found) == {"x"} else found), labels
