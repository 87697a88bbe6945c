"""The scheduler, from the environments that each one sets."""

from __future__ import annotations

import pytest

from tfvolta.facts.scheduler import read_scheduler

SLURM = {
    "SLURM_JOB_ID": "991", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "16", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_NODELIST": "dgx[1-2]",
}  # fmt: skip
MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


def test_slurm_gives_the_ranks_of_the_step() -> None:
    scheduler = read_scheduler(SLURM)
    assert scheduler.kind == "slurm"
    expected = {"job_id": "991", "rank": "5", "local_rank": "1", "world_size": "8", "node_list": "dgx[1-2]"}
    assert {word: scheduler.details[word] for word in expected} == expected


def test_mpirun_inside_a_slurm_job_gives_mpi_ranks_and_the_allocation() -> None:
    scheduler = read_scheduler({**SLURM, **MPI})
    assert (scheduler.kind, scheduler.details["rank"], scheduler.details["world_size"]) == ("open_mpi", "3", "4")
    assert (scheduler.details["allocation"], scheduler.details["allocation_id"]) == ("slurm", "991")


def test_srun_with_pmi_is_slurm_and_mpiexec_in_a_job_is_mpich() -> None:
    assert read_scheduler({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "8"}).kind == "slurm"
    assert read_scheduler({**SLURM, "PMI_RANK": "2", "PMI_SIZE": "4"}).kind == "mpich"


@pytest.mark.parametrize(
    ("environ", "kind", "word", "value"),
    [
        ({}, "none", "", None),
        ({"PBS_JOBID": "12.server", "PBS_NP": "8"}, "pbs", "world_size", "8"),
        ({"LSB_JOBID": "7", "JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "6"}, "lsf", "rank", "2"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "worker-0"}, "kubernetes", "pod", "worker-0"),
        ({"SLURM_JOB_ID": ""}, "none", "", None),
    ],
)
def test_kinds(environ: dict[str, str], kind: str, word: str, value: str | None) -> None:
    scheduler = read_scheduler(environ)
    assert (scheduler.kind, scheduler.details.get(word)) == (kind, value)
