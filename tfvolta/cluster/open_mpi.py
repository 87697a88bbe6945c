"""Open MPI's mpirun, and Kubernetes' MPIJob, which calls it.

Source: mpirun(1), "Exported Environment Variables"; Kubeflow's MPI Operator, which sets the hostfile's variable.
"""

from __future__ import annotations

from typing import Optional

from tfvolta.cluster.finding import Finding, Resolver, Surroundings
from tfvolta.cluster.mpi import Launcher, read_launcher

LAUNCHER = Launcher(
    name="open_mpi",
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    jobs=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
)


def _mark(surroundings: Surroundings) -> Optional[str]:
    return surroundings.first_of(LAUNCHER.size)


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    return tuple(name for name in (LAUNCHER.rank, LAUNCHER.size) if not surroundings.environ.get(name))


def read(surroundings: Surroundings) -> Finding:
    """The ranks of mpirun."""
    return read_launcher(LAUNCHER, surroundings)


RESOLVER = Resolver("open_mpi", _mark, read, _missing)
