"""Where a process's evidence belongs: alone in a folder of its own, under a launcher in the folder of the run."""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional

from tfvolta.cluster.cluster import Cluster

# What a launcher says to its workers. The run's id must be a plain folder name, the same for all workers.
RUN_ID = "TFVOLTA_RUN_ID"
HEARTBEATS = "TFVOLTA_HEARTBEATS"
RESTART = "TFVOLTA_RESTART"
WORKERS = "workers"


@dataclasses.dataclass(frozen=True)
class Place:
    """Which process of a run this is, and what its launcher said.

    Attributes:
        run_id: Name of the run that its launcher gave; None where each process names its own.
        worker: Such as ``worker 1``; empty for a process that trains alone.
        rank: Its number among all of the run.
        workers: How many processes there are.
        is_chief: Whether it writes what is written once.
        heartbeats: Folder for signs of life that the launcher reads; None without one.
        restart: How often the launcher has started this run again.
    """

    run_id: Optional[str] = None
    worker: str = ""
    rank: Optional[int] = None
    workers: int = 1
    is_chief: bool = True
    heartbeats: Optional[str] = None
    restart: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, str], cluster: Optional[Cluster]) -> Place:
        """The place of the process that has this environment and belongs to this cluster."""
        restart = environ.get(RESTART, "")
        alone = cls(
            run_id=environ.get(RUN_ID) or None,
            heartbeats=environ.get(HEARTBEATS) or None,
            restart=int(restart) if restart.isdigit() else 0,
        )
        if cluster is None:
            return alone
        return dataclasses.replace(
            alone,
            worker=cluster.name,
            rank=cluster.rank,
            workers=cluster.world_size,
            is_chief=cluster.is_chief,
        )

    @property
    def folder(self) -> str:
        """Name of a worker's own folder, such as ``worker-1``; empty for the chief and for a process alone."""
        return "" if self.is_chief or not self.worker else self.worker.replace(" ", "-")
