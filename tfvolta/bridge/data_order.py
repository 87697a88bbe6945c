"""Whether data come in the same order again when a training is started again.

A training that goes on from a checkpoint passes over what was trained already. With a fixed or a seeded order the rest
is then the rest; without a seed it is another draw.
Source: shuffle_op.py, flat_map_op.py and interleave_op.py in tensorflow/python/data/ops, the same in 2.15 and 2.21.
"""

from __future__ import annotations

import random
from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import datasets

FIXED, SEEDED, UNSEEDED, UNKNOWN = "fixed", "seeded", "unseeded", "unknown"
_NO_SEED = 87654321  # what TensorFlow gives for the global seed where none was set
# Transformations that make data sets out of elements, and draw those seeds only when an element is asked for.
_NESTING = frozenset({"_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset"})


def of_dataset(dataset: Any) -> str:
    """The order of a ``tf.data.Dataset``: ``fixed``, ``seeded`` or ``unseeded``; ``unknown`` for a generator's."""
    seeds = [seeded for each in datasets.chain(dataset) for seeded in _draws(each)]
    if not all(seeds):
        return UNSEEDED
    if any(each.type == "GeneratorDataset" for part in datasets.chain(dataset) for each in _operations(part)):
        return UNKNOWN  # Python code, made into a data set inside a flat_map
    return SEEDED if seeds else FIXED


def of_arrays(shuffle: Any) -> str:
    """The order of arrays, which Keras shuffles by TensorFlow's global seed."""
    if not shuffle:
        return FIXED
    return UNSEEDED if tf.compat.v1.random.get_seed(1)[0] in (None, _NO_SEED) else SEEDED


def pass_epoch(dataset: Any, original: Any) -> None:
    """Makes an iterator as an epoch that is over did, so that the seeds drawn next are those of the next epoch.

    Args:
        dataset: What Keras iterates; a distributed one under a strategy.
        original: The ``tf.data.Dataset`` that it was made from, or None.
    """
    iterator = iter(dataset)
    if original is not None and _is_lazy(original):
        next(iterator, None)


def pass_sequence(batches: Optional[int], shuffled: bool) -> None:
    """Draws from Python's generator what Keras drew for an epoch of a sequence, whose batches it shuffles."""
    if shuffled and batches:
        random.shuffle(list(range(batches)))


def _is_lazy(dataset: Any) -> bool:
    """Whether seeds of an epoch are drawn only when its first batch is taken."""
    names = [type(each).__name__ for each in datasets.chain(dataset)]
    return names.count("_ShuffleDataset") > 1 or not _NESTING.isdisjoint(names)


def _draws(dataset: Any) -> Iterator[bool]:
    """For everything random in one transformation, whether it has a seed."""
    if type(dataset).__name__ == "_ShuffleDataset":
        yield _is_seed(dataset._seed, dataset._seed2)
    for operation in _operations(dataset):
        if operation.type.startswith("ShuffleDataset"):
            yield _is_seed(*operation.inputs[2:4])
        elif operation.type.startswith("Random") and "seed2" in operation.node_def.attr:
            yield any(operation.get_attr(name) for name in ("seed", "seed2"))


def _operations(dataset: Any) -> list[Any]:
    """Operations of the function that a transformation calls for each element."""
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    graph = getattr(function, "graph", None)
    return [] if graph is None else list(graph.get_operations())


def _is_seed(*seeds: Any) -> bool:
    return any(tf.get_static_value(seed) for seed in seeds)
