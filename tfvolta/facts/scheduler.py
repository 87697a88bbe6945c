"""What started this process: a batch scheduler or an MPI launcher, from the environment.

Source: the variables named in sbatch(1) and srun(1), Open MPI's mpirun(1), MPICH's Hydra, qsub(1B), bsub(1) and
Kubernetes' "Discovering Services" and "Indexed Job" pages.
"""

from __future__ import annotations

from typing import Mapping

from tfvolta.facts.schema import Scheduler

# Word in Scheduler.details: variables that give it, the first that is set wins.
_SLURM = {
    "job_id": ("SLURM_JOB_ID", "SLURM_JOBID"),
    "step_id": ("SLURM_STEP_ID", "SLURM_STEPID"),
    "rank": ("SLURM_PROCID",),
    "local_rank": ("SLURM_LOCALID",),
    "world_size": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    "nodes": ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    "node_rank": ("SLURM_NODEID",),
    "node_list": ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    "tasks_per_node": ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
    "cpus_per_task": ("SLURM_CPUS_PER_TASK",),
    "gpus_per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "gpus": ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
    "partition": ("SLURM_JOB_PARTITION",),
}
_OPEN_MPI = {
    "rank": ("OMPI_COMM_WORLD_RANK",),
    "local_rank": ("OMPI_COMM_WORLD_LOCAL_RANK",),
    "world_size": ("OMPI_COMM_WORLD_SIZE",),
    "local_size": ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    "node_rank": ("OMPI_COMM_WORLD_NODE_RANK",),
}
_MPICH = {
    "rank": ("PMI_RANK",),
    "world_size": ("PMI_SIZE",),
    "local_rank": ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID"),
    "local_size": ("MPI_LOCALNRANKS",),
}
_PBS = {
    "job_id": ("PBS_JOBID",),
    "rank": ("PBS_TASKNUM",),
    "nodes": ("PBS_NUM_NODES",),
    "world_size": ("PBS_NP",),
    "node_file": ("PBS_NODEFILE",),
    "queue": ("PBS_QUEUE",),
}
_LSF = {
    "job_id": ("LSB_JOBID",),
    "rank": ("JSM_NAMESPACE_RANK", "PMIX_RANK"),
    "local_rank": ("JSM_NAMESPACE_LOCAL_RANK",),
    "world_size": ("JSM_NAMESPACE_SIZE", "LSB_DJOB_NUMPROC"),
    "hosts": ("LSB_MCPU_HOSTS", "LSB_HOSTS"),
    "queue": ("LSB_QUEUE",),
}
_KUBERNETES = {
    "pod": ("POD_NAME", "HOSTNAME"),
    "namespace": ("POD_NAMESPACE",),
    "rank": ("JOB_COMPLETION_INDEX",),
    "tf_config": ("TF_CONFIG",),
}
# Kind, the variables of which one marks it, its details. A launcher inside an allocation comes before the
# allocation: its ranks are this process's, while the allocation's are those of the launcher's own daemons.
_KINDS = (
    ("open_mpi", ("OMPI_COMM_WORLD_SIZE",), _OPEN_MPI),
    ("mpich", ("PMI_SIZE",), _MPICH),
    ("slurm", ("SLURM_JOB_ID", "SLURM_JOBID"), _SLURM),
    ("lsf", ("LSB_JOBID",), _LSF),
    ("pbs", ("PBS_JOBID",), _PBS),
    ("kubernetes", ("KUBERNETES_SERVICE_HOST",), _KUBERNETES),
)


def read_scheduler(environ: Mapping[str, str]) -> Scheduler:
    """What started this process, with the details that training needs.

    Args:
        environ: The process environment.

    Returns:
        ``details`` has rank, local_rank, world_size, job_id and more, where they are known; ``allocation`` and
        ``allocation_id`` where an MPI launcher runs inside a scheduler's job.
    """
    found = [(kind, table) for kind, marks, table in _KINDS if any(environ.get(mark) for mark in marks)]
    if _started_by_srun(environ):
        found = [(kind, table) for kind, table in found if kind != "mpich"]
    if not found:
        return Scheduler()
    kind, table = found[0]
    details = _details(environ, table)
    if len(found) > 1 and kind in ("open_mpi", "mpich"):
        details["allocation"] = found[1][0]
        job = _details(environ, found[1][1]).get("job_id")
        if job is not None:
            details["allocation_id"] = job
    return Scheduler.model_validate({"kind": kind, "details": details})


def _started_by_srun(environ: Mapping[str, str]) -> bool:
    """srun with PMI-2 sets MPICH's variables as well; then both ranks are the same."""
    return "SLURM_STEP_ID" in environ and environ.get("PMI_RANK") == environ.get("SLURM_PROCID")


def _details(environ: Mapping[str, str], table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    details = {}
    for word, variables in table.items():
        value = next((environ[variable] for variable in variables if environ.get(variable)), None)
        if value is not None:
            details[word] = value
    return details
