"""How many files a ``tf.data.Dataset`` reads, and how TensorFlow would divide it between workers.

Source: tensorflow/python/data/ops/readers.py; the rewriting of graphs in tensorflow/core/grappler/optimizers/data/
auto_shard.cc, the same in TensorFlow 2.15 and 2.21: AUTO divides files as soon as something reads any, and rows
otherwise.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import datasets

_READERS = frozenset({"TFRecordDatasetV2", "_TFRecordDataset", "TextLineDatasetV2", "_TextLineDataset",
                      "FixedLengthRecordDatasetV2", "_FixedLengthRecordDataset"})  # fmt: skip
_READING_OPERATIONS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")


def reads_files(dataset: Any) -> bool:
    """Whether something in a data set reads files of records or lines."""
    return any(True for _ in _readers(dataset))


def number_of_files(dataset: Any) -> Optional[int]:
    """Files that a data set reads; None where nothing reads any, or their number is not known.

    Of several readers the one with the fewest files counts, since each of them is divided.
    """
    counts = [_names(reader) for reader in _readers(dataset)]
    return min(counts) if counts and all(count >= 0 for count in counts) else None


def policy(dataset: Any) -> str:
    """The policy that a data set's options ask for: ``auto``, ``file``, ``data``, ``hint`` or ``off``."""
    return str(dataset.options().experimental_distribute.auto_shard_policy.name).lower()


def with_policy(dataset: Any, name: str) -> Any:
    """The data set with another policy."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, name.upper())
    return dataset.with_options(options)


def _readers(dataset: Any) -> Iterator[Any]:
    """Transformations that read files, or whose function does."""
    for each in datasets.chain(dataset):
        if type(each).__name__ in _READERS:
            yield each
            continue
        function = getattr(getattr(each, "_map_func", None), "function", None)
        graph = getattr(function, "graph", None)
        if graph is not None and any(name.startswith(_READING_OPERATIONS) for name in _operations(graph)):
            yield each


def _operations(graph: Any) -> Iterator[str]:
    """Types of a graph's operations, those of the functions that it calls included."""
    definition = graph.as_graph_def()
    yield from (node.op for node in definition.node)
    for function in definition.library.function:
        yield from (node.op for node in function.node_def)


def _names(reader: Any) -> int:
    """Number of file names that a reader is given; negative where not known."""
    names = getattr(reader, "_filenames", None)
    if isinstance(names, tf.Tensor):
        return int(tf.size(names))
    inputs = reader._inputs()
    source = names if isinstance(names, tf.data.Dataset) else inputs[0] if inputs else None
    while source is not None and int(source.cardinality()) < 0:  # below repeat()
        source = getattr(source, "_input_dataset", None)
    return -1 if source is None else int(source.cardinality())
