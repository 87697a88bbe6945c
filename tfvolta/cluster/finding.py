"""What a resolver looks at, and what it found."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, NamedTuple, Optional

from tfvolta.cluster.address import host_of
from tfvolta.cluster.cluster import RANKED, Cluster
from tfvolta.errors import Problem


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What resolvers look at.

    Attributes:
        environ: The process environment.
        config: The whole config, or None.
        facts: ``tfvolta.facts.schema.Facts`` of this machine, or None.
    """

    environ: Mapping[str, str]
    config: Optional[Any] = None
    facts: Optional[Any] = None

    def get(self, key: str) -> Any:
        """The config's value at a dotted key; None without a config."""
        return None if self.config is None else self.config.get(key)

    @property
    def kind(self) -> str:
        """The strategy kind asked for; empty without a config."""
        return "" if self.config is None else str(self.config.get("strategy.kind") or "default")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one resolver found.

    Attributes:
        cluster: The processes that train together; None where there is one process, or where problems stand.
        problems: What is wrong with the variables.
        missing: Variables that this resolver needs and that are not set.
        notes: What a reader should know although no cluster came of it.
    """

    cluster: Optional[Cluster] = None
    problems: tuple[Problem, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Resolver(NamedTuple):
    """One source of clusters.

    Attributes:
        name: As in ``cluster.resolver``.
        mark: The variable whose presence says that this source applies; None where it does not.
        read: Reads the variables.
        needs: Variables without which it can say nothing.
    """

    name: str
    mark: Callable[[Surroundings], Optional[str]]
    read: Callable[[Surroundings], Finding]
    needs: tuple[str, ...]


def make_cluster(
    resolver: str, addresses: Mapping[str, tuple[str, ...]], task_type: str, task_index: int, found: tuple[str, ...]
) -> Cluster:
    """A cluster whose addresses are known; ranks are counted over chief, workers and parameter servers.

    Which processes share a machine is told by equal host names.
    """
    members = [(job, index, address) for job in RANKED for index, address in enumerate(addresses.get(job, ()))]
    names = [(job, index) for job, index, _ in members]
    rank = names.index((task_type, task_index)) if (task_type, task_index) in names else None
    local_rank = local_size = None
    if rank is not None:
        hosts = [host_of(address) for _, _, address in members]
        local_rank, local_size = hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
    return Cluster(resolver, dict(addresses), task_type, task_index, rank, len(members), local_rank, local_size, found)
