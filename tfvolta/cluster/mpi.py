"""What Open MPI and MPICH have in common: ranks are told, hosts are not, unless something around the launcher does."""

from __future__ import annotations

import os
from typing import Mapping, NamedTuple, Optional, Union

from tfvolta.cluster.finding import Finding, Surroundings, rank_problem, whole_numbers
from tfvolta.cluster.host_file import OWN, Slots, local_place, read_slots, same_host
from tfvolta.cluster.ports import job_port
from tfvolta.cluster.roles import from_hosts, without_addresses
from tfvolta.errors import Problem


class Launcher(NamedTuple):
    """Variables of one MPI launcher.

    Attributes:
        name: As in ``cluster.resolver``.
        rank: Holds the rank.
        size: Holds the number of ranks.
        local_rank: Holds the number among the ranks of this machine.
        local_size: Holds how many these are.
        jobs: Variables that hold one text in all ranks of a job and another in other jobs.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    jobs: tuple[str, ...]


class Place(NamedTuple):
    """Where a rank is."""

    rank: int
    size: int
    local_rank: Optional[int]
    local_size: Optional[int]


# Where the launcher has no number of its job: that of the batch job around it.
_AROUND = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def read_launcher(launcher: Launcher, surroundings: Surroundings) -> Finding:
    """The ranks of an MPI job, with addresses where their hosts are known."""
    place, problems = _place(launcher, surroundings.environ)
    if place is None:
        return Finding(problems=tuple(problems))
    if place.size == 1:
        return Finding()
    said = f"{launcher.name} rank {place.rank} of {place.size} ({launcher.rank}, {launcher.size})."
    hosts = _hosts(launcher, surroundings, place)
    if isinstance(hosts, Problem):
        local = (place.local_rank, place.local_size)
        return Finding(without_addresses(launcher.name, place.rank, place.size, local, hosts, said))
    port, source = _port(launcher, surroundings)
    found = (said, f"Hosts from {hosts.source}.", f"Ports from {port} on, from {source}.")
    return from_hosts(launcher.name, surroundings, hosts.hosts, place.rank, port, found)


def _place(launcher: Launcher, environ: Mapping[str, str]) -> tuple[Optional[Place], list[Problem]]:
    names = (launcher.rank, launcher.size, launcher.local_rank, launcher.local_size)
    numbers, problems = whole_numbers({name: environ[name] for name in names if environ.get(name)})
    if not problems:
        problems = rank_problem(launcher.rank, numbers[launcher.rank], numbers[launcher.size])
    if problems:
        return None, problems
    local = numbers.get(launcher.local_rank), numbers.get(launcher.local_size)
    return Place(numbers[launcher.rank], numbers[launcher.size], *local), []


def _hosts(launcher: Launcher, surroundings: Surroundings, place: Place) -> Union[Slots, Problem]:
    """Host of every rank, or why it is not known."""
    if place.local_size == place.size:
        return Slots(("127.0.0.1",) * place.size, f"{launcher.local_size}: all ranks are on this machine")
    slots = read_slots(surroundings)
    if slots is None:
        return _no_hosts(launcher, place)
    if isinstance(slots, Problem):
        return slots
    if len(slots.hosts) < place.size:
        received = f"{len(slots.hosts)} slots"
        return Problem(
            f"environment: {slots.source}", f"a slot for each of {place.size} ranks", received, fix=_fix(launcher)
        )
    hosts = slots.hosts[: place.size]
    local_rank, local_size = local_place(hosts, place.rank)
    fits = same_host(hosts[place.rank], surroundings.host)
    fits = fits and place.local_rank in (None, local_rank) and place.local_size in (None, local_size)
    return Slots(hosts, slots.source) if fits else _other_layout(launcher, surroundings, place, slots, hosts)


def _port(launcher: Launcher, surroundings: Surroundings) -> tuple[int, str]:
    if surroundings.port:
        return surroundings.port, "cluster.port"
    variable = surroundings.first_of(*launcher.jobs, *_AROUND)
    if variable is not None:
        return job_port(surroundings.environ[variable]), variable
    user = str(os.getuid())
    return job_port(user), "your user number; set cluster.port where two jobs share a machine"


def _fix(launcher: Launcher) -> str:
    passed = f"{'mpirun -x' if launcher.name == 'open_mpi' else 'mpiexec -genv'} {OWN}"
    return (
        f"set {OWN} to a file with a line `HOST slots=N` for each host in the order of ranks, readable on every host "
        f"({passed}), or use strategy.kind: horovod"
    )


def _no_hosts(launcher: Launcher, place: Place) -> Problem:
    return Problem(
        where=f"environment: {OWN}",
        expected=f"the host of each of {place.size} ranks",
        received=f"{launcher.rank}={place.rank}, {launcher.size}={place.size}, and no variable that names hosts",
        why=f"{launcher.name} tells a process its rank and not where the others are; TF_CONFIG needs their addresses",
        fix=_fix(launcher),
    )


def _other_layout(
    launcher: Launcher, surroundings: Surroundings, place: Place, slots: Slots, hosts: tuple[str, ...]
) -> Problem:
    local = "" if place.local_rank is None else f", number {place.local_rank} of {place.local_size} there"
    expected_rank, expected_size = local_place(hosts, place.rank)
    return Problem(
        where=f"environment: {slots.source}",
        expected=f"rank {place.rank} on {hosts[place.rank]}, number {expected_rank} of {expected_size} there",
        received=f"rank {place.rank} on {surroundings.host}{local}",
        why="the ranks do not fill the hosts one after another in the order of the list",
        fix=f"start with {'--map-by slot' if launcher.name == 'open_mpi' else 'hosts in order and without -ppn'}; "
        f"or {_fix(launcher)}",
    )
