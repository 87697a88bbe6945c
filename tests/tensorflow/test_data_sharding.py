"""How data are divided between workers: policies, files, and shares of batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import tf
from tfvolta.bridge import dataset_files, datasets
from tfvolta.data import shard, share_of_batches
from tfvolta.data.sharded_arguments import divided_between_ranks, divided_by_strategy
from tfvolta.errors import ConfigError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("records")
    names = [str(folder / f"{number}.tfrecord") for number in range(4)]
    for name in names:
        with tf.io.TFRecordWriter(name) as writer:
            for _ in range(4):
                writer.write(b"record")
    return names


READERS: dict[str, tuple[Any, int, str]] = {
    "one file": (lambda names: tf.data.TFRecordDataset(names[0]), 1, "data"),
    "a list of one": (lambda names: tf.data.TFRecordDataset(names[:1]), 1, "data"),
    "three files": (lambda names: tf.data.TFRecordDataset(names[:3]).map(lambda row: row), 3, "data"),
    "four files": (lambda names: tf.data.TFRecordDataset(names).shuffle(8).repeat(), 4, "file"),
    "lines": (lambda names: tf.data.TextLineDataset(names[:2]), 2, "file"),
    "interleaved": (
        lambda names: tf.data.Dataset.from_tensor_slices(names).interleave(
            lambda name: tf.data.TFRecordDataset(name), num_parallel_calls=2
        ),
        4,
        "file",
    ),
    "listed and repeated": (
        lambda names: tf.data.Dataset.list_files(names[:2]).repeat().flat_map(tf.data.TFRecordDataset),
        2,
        "file",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_files_are_counted_and_divided_where_they_divide(name: str, files: list[str]) -> None:
    make, count, chosen = READERS[name]
    dataset = make(files).batch(2)
    assert dataset_files.reads_files(dataset) and dataset_files.number_of_files(dataset) == count
    divided, how = shard(dataset, workers=2)
    assert (how.policy, how.files) == (chosen, count)
    assert dataset_files.policy(divided) == chosen


def test_rows_are_divided_where_nothing_reads_files(files: list[str]) -> None:
    for dataset in (
        tf.data.Dataset.range(8).batch(2),
        tf.data.Dataset.from_tensor_slices(files).map(tf.io.read_file).batch(2),
    ):
        divided, how = shard(dataset, workers=2)
        assert how.policy == dataset_files.policy(divided) == "data" and "nothing in the data set reads" in how.message


@pytest.mark.parametrize("policy", ("file", "data", "off"))
def test_a_policy_that_is_asked_for_is_taken(policy: str, files: list[str]) -> None:
    divided, how = shard(tf.data.TFRecordDataset(files).batch(2), 2, policy)
    assert how.policy == dataset_files.policy(divided) == policy


@pytest.mark.parametrize("count", (0, 1))
def test_too_few_files_are_refused_with_both_numbers(count: int, files: list[str]) -> None:
    dataset = tf.data.TFRecordDataset(files[:count]).batch(2) if count else tf.data.Dataset.range(4).batch(2)
    with pytest.raises(ConfigError, match="1 file and 2 workers" if count else "no file reader"):
        shard(dataset, 2, "file")


def values(dataset: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in dataset]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (8, [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]),
        (11, [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]),
        (9, [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]),
    ],
)
def test_each_rank_keeps_its_share_of_every_batch(rows: int, expected: list[list[list[int]]]) -> None:
    for rank in range(2):
        share, how = share_of_batches(tf.data.Dataset.range(rows).batch(4), rank, 2)
        assert values(share) == expected[rank]
        assert int(share.cardinality()) == len(expected[rank])
        found = datasets.batching(share)
        assert found is not None and (found.batch, found.rows) == (2, sum(map(len, expected[rank])))
        assert ("left out" in how.message) == (rows % 2 == 1)


def test_shares_keep_the_structure_and_a_fixed_shape() -> None:
    rows = {"a": np.arange(12).reshape(6, 2), "b": np.arange(6)}, np.arange(6)
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(3, drop_remainder=True)
    for rank in range(3):
        share, _ = share_of_batches(dataset, rank, 3)
        (features, labels), *_ = list(share)
        assert features["a"].shape == (1, 2) and int(labels[0]) == int(features["b"][0]) == rank
        assert share.element_spec[0]["a"].shape == (1, 2)


def test_an_order_without_a_seed_is_said() -> None:
    tf.random.set_seed(None)  # an earlier test may have set one, which is a seed too
    assert "no seed" in share_of_batches(tf.data.Dataset.range(8).shuffle(8).batch(4), 0, 2)[1].message
    assert "no seed" not in share_of_batches(tf.data.Dataset.range(8).shuffle(8, seed=1).batch(4), 0, 2)[1].message


@pytest.mark.parametrize("shuffle", (False, True))
def test_ranks_divide_arrays_without_meeting(shuffle: bool) -> None:
    x = np.arange(10, dtype="float32")[:, None]
    arguments = {"x": x, "y": x[:, 0] * 2, "batch_size": 4, "shuffle": shuffle, "validation_split": 0.0}
    seen: list[list[float]] = []
    for rank in range(2):
        changed, how = divided_between_ranks(arguments, rank, 2, "float32", seed=3)
        assert how.policy == "data" and changed["y"] is None and changed["batch_size"] is None
        epochs = [[float(value) for batch, _ in changed["x"] for value in batch.numpy().ravel()] for _ in range(2)]
        assert (epochs[0] != epochs[1]) == shuffle
        seen.append(epochs[0])
        for batch, labels in changed["x"]:
            np.testing.assert_array_equal(batch.numpy().ravel() * 2, labels.numpy())
    assert sorted(seen[0] + seen[1]) == list(range(10)) and not set(seen[0]) & set(seen[1])


def test_what_cannot_be_divided_is_left_and_said() -> None:
    def batches() -> Any:
        yield np.zeros((2, 1)), np.zeros(2)

    given = {"x": batches()}
    assert divided_between_ranks(given, 0, 2, "float32", 0)[0] is given
    changed, how = divided_by_strategy(given, 2, "auto")
    assert changed == given and how.policy == "" and "kind generator" in how.message
    tf.random.set_seed(None)
    message = divided_by_strategy({"x": np.zeros((4, 1))}, 2, "auto")[1].message
    assert "keeps its share" in message and "set run.seed" in message
    assert "seed" not in divided_by_strategy({"x": np.zeros((4, 1)), "shuffle": False}, 2, "auto")[1].message


def test_validation_data_are_divided_alike(files: list[str]) -> None:
    training, validation = tf.data.Dataset.range(8).batch(4), tf.data.TFRecordDataset(files[:1]).batch(2)
    changed, _ = divided_by_strategy({"x": training, "validation_data": validation}, 2, "auto")
    assert dataset_files.policy(changed["validation_data"]) == "data"
