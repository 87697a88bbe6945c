"""How a data set's batches are kept and fetched: cache, prefetch, copies to a device, tf.data's options."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from typing import Any, Optional

from tfvolta.errors import ConfigError, Problem

MEMORY = "memory"
_SHARE_OF_FREE = 0.5  # the rest is for the model's own buffers, and for what other processes take


@dataclasses.dataclass(frozen=True)
class Fetching:
    """What was asked for of the section ``input``; None and an empty mapping leave things alone."""

    cache: Optional[str] = None
    prefetch: Any = None
    device_prefetch: Optional[int] = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def cached(dataset: Any, place: str = MEMORY, free_bytes: Optional[int] = None, where: str = "input.cache") -> Any:
    """Keeps the batches of a data set after its first pass.

    Args:
        dataset: A ``tf.data.Dataset`` whose batches are the same in each epoch.
        place: ``memory``, or the name of a file.
        free_bytes: Memory that is free; found out where not given.
        where: The place that asks, for messages.

    Raises:
        ConfigError: The batches differ from epoch to epoch, have no end, or do not fit; every reason is given.
    """
    problems = cache_problems(dataset, place, free_bytes, where)
    if problems:
        raise ConfigError("These data are not kept.", problems)
    return dataset.cache() if place == MEMORY else dataset.cache(os.path.abspath(os.path.expanduser(place)))


def cache_problems(dataset: Any, place: str, free_bytes: Optional[int], where: str) -> list[Problem]:
    """Why the batches of a data set cannot be kept."""
    import tensorflow as tf

    from tfvolta.bridge import pipeline

    problems = []
    made_of = pipeline.describe(dataset)
    if made_of.random:
        seen = "a function that draws at random, or calls Python, which may" if made_of.draws else "shuffle"
        problems.append(_differs(where, place, seen))
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        problems.append(_endless(where, place))
    size = size_bytes(dataset)
    free = free_bytes if free_bytes is not None else free_space(place)
    if size is not None and free is not None and size > _SHARE_OF_FREE * free:
        problems.append(_too_large(where, place, size, free))
    return problems


def size_bytes(dataset: Any) -> Optional[int]:
    """Bytes of one pass over a data set; None where its shapes or its length are not known."""
    import tensorflow as tf

    from tfvolta.bridge import datasets, sequence_data

    number = int(dataset.cardinality())
    rows = datasets.batching(dataset)
    known = None if rows is None else rows.rows
    batch = sequence_data.batch_rows(dataset)
    total = 0
    for part in tf.nest.flatten(dataset.element_spec):
        if not isinstance(part, tf.TensorSpec) or part.shape.rank is None or part.dtype == tf.string:
            return None
        shape = list(part.shape)
        if shape and shape[0] is None and batch is not None:
            shape[0] = batch
        if None in shape or number < 0:
            return None
        each = math.prod(shape) * part.dtype.size
        total += each * number if known is None or not shape else each * known // shape[0]
    return total


def free_space(place: str) -> Optional[int]:
    """Bytes that are free in memory, or on the disk of a file; None where that is not known."""
    if place != MEMORY:
        folder = os.path.dirname(os.path.abspath(os.path.expanduser(place)))
        return shutil.disk_usage(folder).free if os.path.isdir(folder) else None
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            values = dict(line.split(":", 1) for line in file)
        return int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def fetched(dataset: Any, asked: Fetching, device: str = "") -> Any:
    """A data set that is kept and fetched as asked; copies to a device come last, as TensorFlow demands.

    Args:
        dataset: A ``tf.data.Dataset``.
        asked: What is asked for.
        device: The device for ``device_prefetch``; empty for none.

    Raises:
        ConfigError: The batches cannot be kept.
    """
    import tensorflow as tf

    from tfvolta.bridge import input_part

    if asked.cache is not None:
        dataset = cached(dataset, asked.cache)
    if asked.options:
        dataset = input_part.with_options(dataset, asked.options)
    if asked.prefetch is not None:
        dataset = dataset.prefetch(tf.data.AUTOTUNE if asked.prefetch == "auto" else asked.prefetch)
    if asked.device_prefetch is not None and device:
        dataset = dataset.apply(tf.data.experimental.prefetch_to_device(device, asked.device_prefetch))
    return dataset


def _differs(where: str, place: str, seen: str) -> Problem:
    return Problem(
        where=where,
        expected="batches that are the same in each epoch",
        received=f"cache: {place} with a data set in which there is {seen}",
        why="the batches of the first epoch would come again in every other one",
        fix="remove input.cache and write dataset.cache() before what is random, after what is slow",
    )


def _endless(where: str, place: str) -> Problem:
    return Problem(
        where=where,
        expected="a data set with an end",
        received=f"cache: {place} with a data set that repeats for ever",
        why="the cache would never be complete, so that nothing is read from it",
        fix="write dataset.cache().repeat(), and remove input.cache",
    )


def _too_large(where: str, place: str, size: int, free: int) -> Problem:
    found = "memory" if place == MEMORY else "disk space"
    return Problem(
        where=where,
        expected=f"data that take at most half of the free {found}, {int(free * _SHARE_OF_FREE) // 2**20} MiB",
        received=f"an epoch of {-(-size // 2**20)} MiB",
        why="a host without memory ends processes" if place == MEMORY else "a full disk ends the training",
        fix="cache: FILE on a disk with room" if place == MEMORY else "name a file on a larger disk",
    )
