"""Horovod's own launcher with Gloo: ranks without addresses, which Horovod exchanges itself.

Under MPI horovodrun calls mpirun, whose variables are read then.

Source: ``horovod/runner/gloo_run.py``, Horovod 0.28.
"""

from __future__ import annotations

from typing import Optional

from tfvolta.cluster.finding import Finding, Resolver, Surroundings, rank_problem, whole_numbers
from tfvolta.cluster.roles import without_addresses
from tfvolta.errors import Problem

RANK, SIZE = "HOROVOD_RANK", "HOROVOD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"


def _mark(surroundings: Surroundings) -> Optional[str]:
    return surroundings.first_of(RANK)


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    return tuple(name for name in (RANK, SIZE) if not surroundings.environ.get(name))


def read(surroundings: Surroundings) -> Finding:
    """The ranks of horovodrun."""
    environ = surroundings.environ
    names = [name for name in (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE) if environ.get(name)]
    numbers, problems = whole_numbers({name: environ[name] for name in names})
    problems += [] if problems else rank_problem(RANK, numbers[RANK], numbers[SIZE])
    if problems:
        return Finding(problems=tuple(problems))
    local = numbers.get(LOCAL_RANK), numbers.get(LOCAL_SIZE)
    said = f"horovodrun started rank {numbers[RANK]} of {numbers[SIZE]} ({RANK}, {SIZE})."
    return Finding(without_addresses("horovod", numbers[RANK], numbers[SIZE], local, _lacking(numbers[SIZE]), said))


def _lacking(size: int) -> Problem:
    return Problem(
        where=f"environment: {RANK}",
        expected=f"the address of each of {size} processes",
        received="ranks without addresses",
        why="horovodrun tells a process its rank only; TF_CONFIG needs the addresses of all",
        fix="set strategy.kind: horovod, or start with `tfvolta launch` in place of horovodrun",
    )


RESOLVER = Resolver("horovod", _mark, read, _missing)
