"""The processes that train together, seen from one of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Optional

from tfvolta.cluster.address import host_of, port_of
from tfvolta.errors import ClusterError, Problem

# In the order in which ranks are counted. An evaluator looks on and takes no rank.
JOBS = ("chief", "worker", "ps", "evaluator")
RANKED = JOBS[:3]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Who trains together, and which of them this process is.

    Attributes:
        resolver: What told: ``tf_config``, ``slurm``, ``open_mpi``, ``mpich``, ``kubernetes`` or ``horovod``.
        addresses: ``host:port`` of every task by job (``chief``, ``worker``, ``ps``, ``evaluator``); empty where
            the resolver knows ranks only, as Horovod's does.
        task_type: This process's job.
        task_index: Its number in that job.
        rank: Its number among chief, workers and parameter servers, in this order; None for an evaluator.
        world_size: How many of these there are.
        local_rank: Its number among those on its machine; None where that is not known.
        local_size: How many of them are on its machine; None where that is not known.
        found: Sentences: what was found, and from which variables.
        lacking: Why the addresses are not known, with the fix; None where they are.
    """

    resolver: str
    addresses: Mapping[str, tuple[str, ...]]
    task_type: str
    task_index: int
    rank: Optional[int]
    world_size: int
    local_rank: Optional[int] = None
    local_size: Optional[int] = None
    found: tuple[str, ...] = ()
    lacking: Optional[Problem] = None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what is written once: the chief, or worker 0 where no job is named so."""
        if self.task_type == "chief":
            return True
        return self.task_type == "worker" and self.task_index == 0 and "chief" not in self.addresses

    @property
    def has_parameter_servers(self) -> bool:
        """Whether variables live on tasks of a job of their own."""
        return bool(self.addresses.get("ps"))

    @property
    def num_workers(self) -> int:
        """Processes that compute gradients: the workers, and the chief too unless it coordinates parameter servers."""
        if not self.addresses:
            return self.world_size
        workers = len(self.addresses.get("worker", ()))
        return workers if self.has_parameter_servers else workers + len(self.addresses.get("chief", ()))

    @property
    def name(self) -> str:
        """This process in words, such as ``worker 2``."""
        return f"{self.task_type} {self.task_index}"

    @property
    def address(self) -> Optional[str]:
        """``host:port`` of this process; None where it is not known."""
        tasks = self.addresses.get(self.task_type, ())
        return tasks[self.task_index] if self.task_index < len(tasks) else None

    @property
    def host(self) -> Optional[str]:
        """Host of this process as the cluster names it."""
        return None if self.address is None else host_of(self.address)

    @property
    def port(self) -> Optional[int]:
        """Port of this process."""
        return None if self.address is None else port_of(self.address)

    def members(self) -> tuple[tuple[str, int, str], ...]:
        """Job, index and address of every process that has a rank, in the order of ranks."""
        return tuple(
            (job, index, address) for job in RANKED for index, address in enumerate(self.addresses.get(job, ()))
        )

    def tf_config(self) -> dict[str, Any]:
        """What TensorFlow reads from the variable TF_CONFIG.

        Raises:
            ClusterError: The addresses are not known.
        """
        if self.lacking is not None:
            raise ClusterError("TF_CONFIG needs the address of every worker.", [self.lacking])
        return {
            "cluster": {job: list(self.addresses[job]) for job in JOBS if self.addresses.get(job)},
            "task": {"type": self.task_type, "index": self.task_index},
        }

    def tf_config_text(self) -> str:
        """``tf_config`` as the value of the variable."""
        return json.dumps(self.tf_config())

    def explain(self) -> tuple[str, ...]:
        """Sentences for a person: who this process is, and what said so."""
        role = "the chief" if self.is_chief else "not the chief"
        rank = "" if self.rank is None else f", rank {self.rank} of {self.world_size}"
        own = f"This process is {self.name}{rank} ({role})"
        place = f", at {self.address}" if self.address else ""
        local = ""
        if self.local_rank is not None:
            local = f"; number {self.local_rank} of {self.local_size or 'several'} on its machine"
        return (f"{own}{place}{local}.", *self.found)
