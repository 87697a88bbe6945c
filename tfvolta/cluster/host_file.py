"""Hosts of an MPI launcher's ranks: from a file of hosts or from the batch job around it.

Source: mpirun(1) of Open MPI, "hostfile"; MPICH's Hydra, "HYDRA_HOST_FILE"; qsub(1B), PBS_NODEFILE; bsub(1),
LSB_MCPU_HOSTS.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Union

from tfvolta.cluster.finding import Surroundings
from tfvolta.cluster.node_list import expand_nodes, tasks_per_node
from tfvolta.errors import Problem

OWN = "TFVOLTA_HOSTFILE"
_FILES = (
    OWN,
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_prte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "HYDRA_HOST_FILE",
    "PBS_NODEFILE",
)
_SLOTS = re.compile(r"\b(?:max[_-])?slots\s*=\s*(\d+)")


class Slots(NamedTuple):
    """Hosts with the number of ranks that each takes.

    Attributes:
        hosts: A host for every slot, in order.
        source: The variable that told.
    """

    hosts: tuple[str, ...]
    source: str


def read_slots(surroundings: Surroundings) -> Union[Slots, Problem, None]:
    """The slots that a launcher fills with ranks; None where no variable tells of hosts."""
    variable = surroundings.first_of(*_FILES)
    if variable is not None:
        return _from_file(variable, surroundings.environ[variable])
    if surroundings.environ.get("LSB_MCPU_HOSTS"):
        words = surroundings.environ["LSB_MCPU_HOSTS"].split()
        pairs = zip(words[::2], words[1::2])
        return Slots(tuple(host for host, count in pairs for _ in range(int(count))), "LSB_MCPU_HOSTS")
    return _from_allocation(surroundings)


def _from_allocation(surroundings: Surroundings) -> Union[Slots, Problem, None]:
    """The nodes of a Slurm allocation in which mpirun was called."""
    environ = surroundings.environ
    listed = surroundings.first_of("SLURM_JOB_NODELIST", "SLURM_NODELIST")
    if listed is None or not environ.get("SLURM_TASKS_PER_NODE"):
        return None
    nodes = expand_nodes(f"environment: {listed}", environ[listed])
    counts = tasks_per_node("environment: SLURM_TASKS_PER_NODE", environ["SLURM_TASKS_PER_NODE"])
    if isinstance(nodes, Problem):
        return nodes
    if isinstance(counts, Problem):
        return counts
    return Slots(tuple(node for node, count in zip(nodes, counts) for _ in range(count)), listed)


def _from_file(variable: str, path: str) -> Union[Slots, Problem]:
    where = f"environment: {variable}"
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.split("#", 1)[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        fix = f"set {OWN} to a file of hosts that every process can read"
        return Problem(where, "a file of hosts that this process can read", path, str(error), fix)
    slots: list[str] = []
    for line in filter(None, lines):
        slots += _line(line)
    if not slots:
        return Problem(where, "a line for each host, such as `node1 slots=2`", f"{path}, which names none")
    return Slots(tuple(slots), variable)


def _line(line: str) -> list[str]:
    """A host as often as it has slots: ``node1 slots=2`` (Open MPI), ``node1:2`` (MPICH), or a line a slot (PBS)."""
    word, *rest = line.split(None, 1)
    found = _SLOTS.search(rest[0]) if rest else None
    host, colon, number = word.rpartition(":")
    if colon and number.isdigit() and ":" not in host:
        return [host] * int(number)
    return [word] * (int(found[1]) if found else 1)


def same_host(one: str, other: str) -> bool:
    """Whether two names can mean one machine: equal, or equal up to the domain that one of them has."""
    if re.fullmatch(r"[\d.]+|.*:.*", one) or re.fullmatch(r"[\d.]+|.*:.*", other):
        return True  # a number says nothing about a name
    a, b = one.lower().split("."), other.lower().split(".")
    return a[: len(b)] == b or b[: len(a)] == a


def local_place(hosts: tuple[str, ...], rank: int) -> tuple[int, Optional[int]]:
    """Number of a rank among those on its host, and how many these are."""
    return hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
