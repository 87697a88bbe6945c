"""Which job each process has, and at which address: from the host of every rank, or from the addresses themselves."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from tfvolta.cluster.address import host_of, is_loopback, join
from tfvolta.cluster.cluster import RANKED, Cluster
from tfvolta.cluster.finding import Finding, Surroundings
from tfvolta.errors import Problem


def addressed(
    resolver: str, addresses: Mapping[str, tuple[str, ...]], task_type: str, task_index: int, found: Sequence[str]
) -> Cluster:
    """A cluster whose addresses are known. Which processes share a machine is told by equal host names."""
    members = [(job, index, address) for job in RANKED for index, address in enumerate(addresses.get(job, ()))]
    names = [(job, index) for job, index, _ in members]
    rank = names.index((task_type, task_index)) if (task_type, task_index) in names else None
    local_rank = local_size = None
    if rank is not None:
        hosts = ["localhost" if is_loopback(host_of(address)) else host_of(address) for _, _, address in members]
        local_rank, local_size = hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
    jobs = dict(addresses)
    return Cluster(resolver, jobs, task_type, task_index, rank, len(members), local_rank, local_size, tuple(found))


def from_hosts(
    resolver: str, surroundings: Surroundings, hosts: Sequence[str], rank: int, port: int, found: Sequence[str]
) -> Finding:
    """A cluster of equal processes, whose jobs follow from their ranks.

    With parameter servers, rank 0 is the chief, the last ranks serve, and those between work.

    Args:
        resolver: Who found the hosts.
        surroundings: With the kind of strategy, which decides on the jobs.
        hosts: Host of every rank.
        rank: This process's.
        port: First port on each machine; the next process on it takes the next.
        found: What to tell the reader.
    """
    taken: dict[str, int] = {}
    every = []
    for host in hosts:
        every.append(join(host, port + taken.get(host, 0)))
        taken[host] = taken.get(host, 0) + 1
    if surroundings.kind != "parameter_server":
        return Finding(addressed(resolver, {"worker": tuple(every)}, "worker", rank, found))
    servers = surroundings.parameter_servers
    if len(every) < servers + 2:
        return Finding(problems=(_too_few(resolver, len(every), servers),))
    last = len(every) - servers
    jobs = {"chief": tuple(every[:1]), "worker": tuple(every[1:last]), "ps": tuple(every[last:])}
    job, index = ("chief", 0) if rank == 0 else ("worker", rank - 1) if rank < last else ("ps", rank - last)
    said = f"Rank 0 is the chief, the last {servers} of {len(every)} ranks are parameter servers, the others workers."
    return Finding(addressed(resolver, jobs, job, index, (*found, said)))


def without_addresses(
    resolver: str, rank: int, size: int, local: tuple[Optional[int], Optional[int]], lacking: Problem, *found: str
) -> Cluster:
    """A cluster of which only ranks are known.

    Args:
        local: Number among the processes of this machine, and how many these are.
        lacking: Why the addresses are not known, with the fix.
    """
    return Cluster(resolver, {}, "worker", rank, rank, size, *local, found=found, lacking=lacking)


def _too_few(resolver: str, size: int, servers: int) -> Problem:
    return Problem(
        where="strategy.kind: parameter_server",
        expected=f"at least {servers + 2} processes: a chief, a worker and {servers} parameter server"
        + "s" * (servers > 1),
        received=f"{size} from {resolver}",
        why="the chief coordinates and computes no gradients",
        fix=f"start {servers + 2} processes or more, or set cluster.parameter_servers lower",
    )
