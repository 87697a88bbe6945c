"""Batches of another size than the script's: the same rows, or a reason why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import tf
from tfvolta.data.rebatching import batch_of, in_batches_of
from tfvolta.errors import ConfigError

X = np.arange(40, dtype="float32").reshape(20, 2)
Y = X[:, :1]


def rows(dataset: Any) -> tuple[Any, list[int]]:
    """All rows of a data set, and the sizes of its batches."""
    parts = [x.numpy() for x, _ in dataset]
    return np.concatenate(parts), [len(part) for part in parts]


def test_arrays_get_another_size_and_validation_keeps_its_own() -> None:
    given = {"x": X, "y": Y, "batch_size": 4, "validation_data": (X, Y), "steps_per_epoch": 5}
    changed, change = in_batches_of(given, 10)
    assert changed["batch_size"] == 10 and changed["x"] is X and change.static
    assert changed["validation_batch_size"] == 4
    assert changed["steps_per_epoch"] == 2  # 20 rows an epoch, as before
    assert batch_of(given) == 4 and batch_of({"x": X, "y": Y}) == 32


@pytest.mark.parametrize("drop, sizes", [(False, [8, 8, 4]), (True, [8, 8])])
def test_a_data_set_keeps_its_rows_in_their_order(drop: bool, sizes: list[int]) -> None:
    given = {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(4, drop_remainder=drop).prefetch(1)}
    changed, change = in_batches_of(given, 8)
    found, lengths = rows(changed["x"])
    assert change.static and lengths == sizes and batch_of(given) == 4
    assert np.array_equal(found, X[: sum(sizes)])
    assert int(changed["x"].cardinality()) == len(sizes), "Keras 3 warns at the end of data without a length"


def test_a_length_that_cannot_be_told_is_left_open() -> None:
    rows_only = tf.data.Dataset.from_tensor_slices((X, Y))
    for given in (rows_only.batch(8).repeat(2), rows_only.filter(lambda x, y: True).batch(4)):
        changed, _ = in_batches_of({"x": given}, 4 if given.cardinality() >= 0 else 8)
        assert int(changed["x"].cardinality()) < 0
        assert sum(rows(changed["x"])[1]) in (20, 40)


def test_a_size_that_it_has_already_changes_nothing() -> None:
    given = {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)}
    assert in_batches_of(given, 4)[0]["x"] is given["x"]


@pytest.mark.parametrize("data", ["arrays", "dataset", "validation_split"])
def test_a_batch_larger_than_the_data_is_refused(data: str) -> None:
    given: dict[str, Any] = {"x": X, "y": Y, "batch_size": 4}
    if data == "dataset":
        given = {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)}
    if data == "validation_split":
        given["validation_split"] = 0.25
    with pytest.raises(ConfigError, match="batch larger than the data"):
        in_batches_of(given, 24 if data != "validation_split" else 16)


def ragged() -> Any:
    spec = (tf.TensorSpec((None, None)), tf.TensorSpec((None, 1)))
    return tf.data.Dataset.from_generator(lambda: iter([(X, Y)]), output_signature=spec)


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: tf.data.Dataset.from_tensor_slices((X, Y)).padded_batch(4), "rows of different shapes"),
        (ragged, "other open sizes"),
        (lambda: iter([(X, Y)]), "Python code"),
    ],
)
def test_batches_that_are_no_rows_are_left_alone(make: Any, why: str) -> None:
    given = {"x": make()}
    changed, change = in_batches_of(given, 8)
    assert changed is given and not change.static and why in change.message
