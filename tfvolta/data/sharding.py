"""Which part of a data set each worker reads."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.errors import ConfigError, Problem

POLICIES = ("auto", "file", "data", "off")
_FIX = "set data.sharding: data (or auto), or write at least as many files as there are workers"


@dataclasses.dataclass(frozen=True)
class Sharding:
    """How a data set is divided between workers.

    Attributes:
        policy: ``file``, ``data`` or ``off``; empty where nothing divides the data.
        message: One sentence: what each worker reads, and why.
        files: Files that the data set reads; None where it reads none or their number is not known.
    """

    policy: str
    message: str
    files: Optional[int] = None


def shard(dataset: Any, workers: int, policy: str = "auto", where: str = "data.sharding") -> tuple[Any, Sharding]:
    """Decides how a data set is divided between the workers of a ``MultiWorkerMirroredStrategy``.

    TensorFlow's own choice, AUTO, divides files wherever something reads files, and fails on all workers but the first
    with "Socket closed" where there are fewer files than workers.

    Example:
        ``dataset, how = tfvolta.data.shard(dataset, workers=2)`` before ``fit``.

    Args:
        dataset: A ``tf.data.Dataset``; a batch of it is the global batch.
        workers: Number of workers.
        policy: ``auto`` divides files where every worker gets equally many, and rows otherwise; ``file`` and ``data``
            insist; ``off`` leaves the data of each worker as they are.
        where: The place that asks, for messages.

    Returns:
        The data set with its policy set, and what that means.

    Raises:
        ConfigError: ``file`` was asked for and there are fewer files than workers, or none.
    """
    from tfvolta.bridge import dataset_files

    files = dataset_files.number_of_files(dataset)
    reads = dataset_files.reads_files(dataset)
    if policy == "file" and (not reads or (files is not None and files < workers)):
        raise ConfigError("These files cannot be divided between the workers.", [_too_few(where, files, workers)])
    chosen = policy
    if policy == "auto":
        # Workers with different numbers of files would end at different times.
        chosen = "file" if files and files % workers == 0 else "data"
    return dataset_files.with_policy(dataset, chosen), Sharding(chosen, _sentence(chosen, files, reads, workers), files)


def _sentence(policy: str, files: Optional[int], reads: bool, workers: int) -> str:
    if policy == "off":
        return (
            f"Each of {workers} workers reads all that its own script gives to fit; nothing divides the data. A batch"
            f" that it gives is the global batch: a worker takes 1/{workers} of it a step."
        )
    if policy == "file":
        count = "the files" if files is None else f"{files} files"
        uneven = ""
        if files is not None and files % workers:
            uneven = f" They do not divide evenly: some workers read {-(-files // workers)}, others {files // workers}."
        return f"Each of {workers} workers reads its share of {count}.{uneven}"
    return f"Each of {workers} workers reads all rows and keeps its share of them ({_why_rows(files, reads, workers)})."


def _why_rows(files: Optional[int], reads: bool, workers: int) -> str:
    if not reads:
        return "nothing in the data set reads files"
    if files is None:
        return "the number of files is not known"
    return f"{files} file{'s' * (files != 1)} cannot be divided evenly"


def _too_few(where: str, files: Optional[int], workers: int) -> Problem:
    return Problem(
        where=where,
        expected=f"a data set that reads at least {workers} files, one for each worker",
        received="no file reader" if files is None else f"{files} file{'s' * (files != 1)} and {workers} workers",
        why="sharding: file gives each worker files of its own; the worker without one would end the training of all",
        fix=_FIX,
    )
