"""Environments that launchers make, as data for tests of the cluster."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional

from tfvolta.config.schema import Config


def tf_config(cluster: Any, task: Any, **others: Any) -> dict[str, str]:
    """An environment with TF_CONFIG."""
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, **others})}


def config(kind: Optional[str] = None, **cluster: Any) -> Config:
    """A config of a strategy kind, with a cluster section where something is given."""
    sections: dict[str, Any] = {"strategy": {"kind": kind}} if kind else {}
    return Config.model_validate({**sections, **({"cluster": cluster} if cluster else {})})


def slurm(rank: int, nodes: str, counts: str, size: int, **others: str) -> dict[str, str]:
    """An environment that srun makes."""
    return {
        "SLURM_JOB_ID": "991",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": counts,
        "SLURM_TASKS_PER_NODE": counts,
        **others,
    }


def open_mpi(rank: int, size: int, local_rank: int, local_size: int, **others: str) -> dict[str, str]:
    """An environment that Open MPI's mpirun makes."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "PMIX_NAMESPACE": "prterun-node1-4711@1",
        **others,
    }


def mpich(rank: int, size: int, local_rank: int, local_size: int, **others: str) -> dict[str, str]:
    """An environment that MPICH's mpiexec makes."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(local_rank),
        "MPI_LOCALNRANKS": str(local_size),
        **others,
    }


def indexed_job(index: int, name: str = "train", **others: str) -> dict[str, str]:
    """An environment of a pod of a Kubernetes Indexed Job."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "JOB_COMPLETION_INDEX": str(index),
        "HOSTNAME": f"{name}-{index}",
        **others,
    }


def horovodrun(rank: int, size: int, **others: str) -> dict[str, str]:
    """An environment that horovodrun with Gloo makes on one machine."""
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(size),
        **others,
    }


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """An environment with some variables unset."""
    return {name: text for name, text in environ.items() if name not in names}
