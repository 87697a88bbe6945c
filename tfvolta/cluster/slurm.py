"""Slurm: the tasks of a job step, in the order of Slurm's own list of nodes and ranks.

TensorFlow's own resolver sorts host names as texts, so that rank 1 of ``n[1-11]`` becomes ``n10``, and gives every job
port 8888. Here a rank's host is where Slurm put the rank, which each process checks for itself.

Source: srun(1), sbatch(1), "OUTPUT ENVIRONMENT VARIABLES" and ``--distribution``.
"""

from __future__ import annotations

import re
from typing import Mapping, Optional, Sequence, Union

from tfvolta.cluster.finding import SEVERAL, Finding, Resolver, Surroundings, rank_problem, whole_numbers
from tfvolta.cluster.node_list import expand_nodes, tasks_per_node
from tfvolta.cluster.ports import job_port
from tfvolta.cluster.roles import from_hosts
from tfvolta.errors import Problem
from tfvolta.facts.scheduler import read_scheduler

_MARK = "SLURM_JOB_ID"
# Word of the scheduler's details: the variable that a step has it from.
_NEEDED = {
    "job_id": "SLURM_JOB_ID",
    "step_id": "SLURM_STEP_ID",
    "rank": "SLURM_PROCID",
    "world_size": "SLURM_STEP_NUM_TASKS",
    "node_list": "SLURM_STEP_NODELIST",
    "tasks_per_node": "SLURM_STEP_TASKS_PER_NODE",
}
# Slurm numbers what is no step of srun from the top of 32 bits: the batch script, an interactive shell and the like.
_NO_STEP = 2**32 - 32


def _details(surroundings: Surroundings) -> Mapping[str, str]:
    """What the facts know of the step; an MPI launcher inside it is another resolver's."""
    own = {name: text for name, text in surroundings.environ.items() if not name.startswith(("OMPI_", "PMI_"))}
    scheduler = read_scheduler(own)
    return scheduler.details if scheduler.kind == "slurm" else {}


def in_step(details: Mapping[str, str]) -> bool:
    """Whether srun started this process; a batch script has ranks of its own that mean nothing."""
    step = details.get("step_id", "")
    return step.isdigit() and int(step) < _NO_STEP


def _mark(surroundings: Surroundings) -> Optional[str]:
    details = _details(surroundings)
    if not details:
        return None
    size = details.get("world_size", "1")
    if size == "1" or not (in_step(details) or surroundings.kind in SEVERAL):
        return None
    return _MARK


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    details = _details(surroundings)
    if details and not in_step(details):
        return ()  # read says what is wrong
    return tuple(variable for word, variable in _NEEDED.items() if word not in details)


def read(surroundings: Surroundings) -> Finding:
    """The tasks of this job step, or everything that is wrong with the variables."""
    details = _details(surroundings)
    if not in_step(details):
        return Finding(problems=(_not_srun(details),))
    numbers, problems = whole_numbers({_NEEDED[word]: details[word] for word in ("rank", "world_size")})
    if problems:
        return Finding(problems=tuple(problems))
    rank, size = numbers["SLURM_PROCID"], numbers["SLURM_STEP_NUM_TASKS"]
    if size == 1:
        return Finding()
    hosts = _hosts(surroundings, details, size)
    problems = rank_problem("SLURM_PROCID", rank, size)
    if isinstance(hosts, Problem):
        return Finding(problems=(*problems, hosts))
    problems += [] if problems else _elsewhere(surroundings, hosts, rank)
    if problems:
        return Finding(problems=tuple(problems))
    port = surroundings.port or job_port(details["job_id"], details["step_id"])
    said = (
        f"Slurm job {details['job_id']}, step {details['step_id']}: rank {rank} of {size} (SLURM_PROCID,"
        f" SLURM_STEP_NUM_TASKS) on {details['node_list']} (SLURM_STEP_NODELIST)."
    )
    source = "cluster.port" if surroundings.port else "the job's and the step's number"
    return from_hosts("slurm", surroundings, hosts, rank, port, (said, f"Ports from {port} on, from {source}."))


def _not_srun(details: Mapping[str, str]) -> Problem:
    return Problem(
        where="environment: SLURM_STEP_ID",
        expected="a process started by srun",
        received=f"job {details.get('job_id', '?')} of {details.get('world_size', '?')} tasks, and no job step",
        why="the batch script runs once, on the first node; the other tasks would never start, and this one would wait",
        fix="start with srun: srun tfvolta run --config CONFIG train.py",
    )


def _hosts(surroundings: Surroundings, details: Mapping[str, str], size: int) -> Union[tuple[str, ...], Problem]:
    """Host of every rank."""
    nodes = expand_nodes("environment: SLURM_STEP_NODELIST", details["node_list"])
    if isinstance(nodes, Problem):
        return nodes
    counts = tasks_per_node("environment: SLURM_STEP_TASKS_PER_NODE", details["tasks_per_node"])
    if isinstance(counts, Problem):
        return counts
    if len(counts) != len(nodes) or sum(counts) != size:
        return Problem(
            where="environment: SLURM_STEP_TASKS_PER_NODE",
            expected=f"{len(nodes)} numbers that add up to {size} tasks",
            received=f"{details['tasks_per_node']}, {len(counts)} numbers that add up to {sum(counts)}",
            why=f"the step has the nodes {details['node_list']} and SLURM_STEP_NUM_TASKS={size}",
            fix="start the step with srun --ntasks and --ntasks-per-node, and let it set its variables",
        )
    words = re.split(r"[:,*]", surroundings.environ.get("SLURM_DISTRIBUTION", "block").lower())
    plane = surroundings.environ.get("SLURM_DIST_PLANESIZE", "1")
    width = {"cyclic": 1, "plane": int(plane) if plane.isdigit() and int(plane) else 1}.get(words[0], max(counts))
    return tuple(nodes[number] for number in _dealt(counts, width))


def _dealt(counts: Sequence[int], width: int) -> list[int]:
    """Number of the node of each rank, dealt out in rounds of so many tasks a node until each has its count."""
    left, order = list(counts), []
    while any(left):
        for number in range(len(left)):
            given = min(width, left[number])
            order += [number] * given
            left[number] -= given
    return order


def _elsewhere(surroundings: Surroundings, hosts: Sequence[str], rank: int) -> list[Problem]:
    """The problem where Slurm put this rank on another node than the layout says; each process checks its own."""
    own = surroundings.environ.get("SLURMD_NODENAME", "")
    if not own or own == hosts[rank]:
        return []
    return [
        Problem(
            where="environment: SLURM_DISTRIBUTION",
            expected=f"rank {rank} on {hosts[rank]}",
            received=f"rank {rank} on {own} (SLURMD_NODENAME)",
            why="the tasks are laid out in a way that the step's variables do not tell, such as arbitrary",
            fix="start with srun --distribution=block (or cyclic)",
        )
    ]


RESOLVER = Resolver("slurm", _mark, read, _missing)
