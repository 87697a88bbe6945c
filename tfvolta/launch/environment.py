"""The environment of each worker: who it is, what it may use, and where it gives signs of life."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Optional, Sequence

from tfvolta.errors import Problem
from tfvolta.evidence.place import HEARTBEATS, RESTART, RUN_ID
from tfvolta.launch.binding import Binding
from tfvolta.launch.ports import LOOPBACK
from tfvolta.launch.tasks import Task

# Variables by which a launcher tells a process who it is, and who sets them.
ALREADY = {
    "TF_CONFIG": "a cluster manager, or another launcher",
    "HOROVOD_RANK": "horovodrun",
    "OMPI_COMM_WORLD_RANK": "mpirun",
    "SLURM_PROCID": "Slurm",
}
INTERFACE = "lo"
# Workers that import TensorFlow on a busy machine are minutes apart; Horovod's own 30 s are for machines that idle.
_GLOO_SECONDS = "300"


@dataclasses.dataclass(frozen=True)
class Start:
    """One start of all workers of a run.

    Attributes:
        run_id: Name of the run.
        heartbeats: Folder for signs of life.
        restart: How often the run was started before.
        addresses: ``host:port`` of each task, in the order of ranks; none for Horovod.
        rendezvous_port: Of Horovod's rendezvous server; None for the other kinds.
    """

    run_id: str
    heartbeats: str
    restart: int = 0
    addresses: tuple[str, ...] = ()
    rendezvous_port: Optional[int] = None


def already_started(environ: Mapping[str, str]) -> list[Problem]:
    """Why a launcher must not start workers here: this process is one."""
    return [
        Problem(
            where=f"environment: {name}",
            expected="a process that is no worker of a job yet",
            received=f"{name}={environ[name][:60]}",
            why=f"{who} set it: that job has its workers already, and each would start workers of its own",
            fix=f"start `tfvolta run` in each worker of that job, in place of `tfvolta launch`; or, where "
            f"it is a leftover, unset it: env -u {name} tfvolta launch ...",
        )
        for name, who in ALREADY.items()
        if environ.get(name)
    ]


def worker_environment(
    environ: Mapping[str, str],
    task: Task,
    tasks: Sequence[Task],
    start: Start,
    gpus: Optional[Sequence[int]] = None,
    binding: Optional[Binding] = None,
) -> dict[str, str]:
    """The whole environment of one worker.

    Args:
        environ: Of the launcher.
        task: The worker.
        tasks: All of them.
        start: This start of the run.
        gpus: What CUDA shows it; nothing where the list is empty, and what it shows the launcher when None.
        binding: Its processors.
    """
    own = dict(environ)
    own.update({RUN_ID: start.run_id, HEARTBEATS: start.heartbeats, RESTART: str(start.restart)})
    own.setdefault("PYTHONUNBUFFERED", "1")  # a pipe would hold lines back until the worker ends
    own.setdefault("PYTHONFAULTHANDLER", "1")  # a crash in native code shows where Python was
    if start.rendezvous_port is not None:
        own.update(_horovod(task, tasks, start.rendezvous_port))
        own.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", _GLOO_SECONDS)
    else:
        own["TF_CONFIG"] = json.dumps(_tf_config(task, tasks, start.addresses))
    if gpus is not None:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus)) if gpus else "-1"
        own["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # in which facts number them
    if binding is not None and binding.cpus:
        own.setdefault("OMP_NUM_THREADS", str(len(binding.cpus)))
    return own


def _tf_config(task: Task, tasks: Sequence[Task], addresses: Sequence[str]) -> dict[str, Any]:
    cluster: dict[str, list[str]] = {}
    for each, address in zip(tasks, addresses):
        cluster.setdefault(each.job, []).append(address)
    return {"cluster": cluster, "task": {"type": task.job, "index": task.index}}


def _horovod(task: Task, tasks: Sequence[Task], port: int) -> dict[str, str]:
    """What Horovod reads when Gloo joins the ranks. Source: ``horovod/runner/gloo_run.py``, Horovod 0.28."""
    size = str(len(tasks))
    return {
        "HOROVOD_HOSTNAME": "localhost",
        "HOROVOD_RANK": str(task.rank),
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": str(task.rank),
        "HOROVOD_LOCAL_SIZE": size,
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": LOOPBACK,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
    }
