"""MPICH's mpiexec (Hydra), and the launchers made of it: Intel MPI, MVAPICH, Cray's.

Source: MPICH's Hydra process manager, and PMI-1's variables.
"""

from __future__ import annotations

from typing import Optional

from tfvolta.cluster.finding import Finding, Resolver, Surroundings
from tfvolta.cluster.mpi import Launcher, read_launcher
from tfvolta.facts.scheduler import read_scheduler

LAUNCHER = Launcher(
    name="mpich",
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
    jobs=("PMI_JOBID", "PALS_APID"),
)


def _mark(surroundings: Surroundings) -> Optional[str]:
    # srun sets PMI's variables as well; the facts know which of the two it was.
    return LAUNCHER.size if read_scheduler(surroundings.environ).kind == "mpich" else None


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    return tuple(name for name in (LAUNCHER.rank, LAUNCHER.size) if not surroundings.environ.get(name))


def read(surroundings: Surroundings) -> Finding:
    """The ranks of mpiexec."""
    return read_launcher(LAUNCHER, surroundings)


RESOLVER = Resolver("mpich", _mark, read, _missing)
