"""Which processes a run has: their jobs, their numbers, and what each is for."""

from __future__ import annotations

import dataclasses

KINDS = ("multi_worker_mirrored", "horovod", "parameter_server")


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a run.

    Attributes:
        job: ``worker``, ``chief`` or ``ps``.
        index: Its number in that job.
        rank: Its number among all of the run.
        trains: Whether its end is the end of training; others serve until those have ended.
        computes: Whether it computes gradients, so that it gets a GPU and processors of its own.
    """

    job: str
    index: int
    rank: int
    trains: bool = True
    computes: bool = True

    @property
    def name(self) -> str:
        """Such as ``worker 1``; the word of messages, prefixes and evidence."""
        return f"{self.job} {self.index}"

    @property
    def stem(self) -> str:
        """Its name as a file's, such as ``worker-1``."""
        return f"{self.job}-{self.index}"


def tasks_of(kind: str, workers: int, servers: int) -> tuple[Task, ...]:
    """The processes of a run in the order of their ranks.

    With parameter servers a chief coordinates, and workers and servers serve until it has ended.

    Args:
        kind: One of ``KINDS``.
        workers: How many compute gradients.
        servers: How many parameter servers; 0 for the other kinds.
    """
    if kind != "parameter_server":
        return tuple(Task("worker", index, index) for index in range(workers))
    chief = Task("chief", 0, 0, computes=False)
    working = [Task("worker", index, 1 + index, trains=False) for index in range(workers)]
    serving = [Task("ps", index, 1 + workers + index, trains=False, computes=False) for index in range(servers)]
    return (chief, *working, *serving)
