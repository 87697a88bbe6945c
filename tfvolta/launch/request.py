"""What is to be launched, and why it cannot be."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Mapping, Optional

from tfvolta.errors import Problem
from tfvolta.facts.horovod import fault
from tfvolta.facts.schema import Facts
from tfvolta.launch.environment import already_started
from tfvolta.launch.gpus import too_few
from tfvolta.launch.tasks import Task, tasks_of

# A preempted job has 30 s on most clusters; after a failure the others find out sooner that a peer is gone.
GRACE_SECONDS = 15.0
_MOST_WORKERS = 1024
_STRATEGIES = {
    "multi_worker_mirrored": "tf.distribute.MultiWorkerMirroredStrategy()",
    "parameter_server": "tf.distribute.ParameterServerStrategy(...)",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to be launched.

    Attributes:
        kind: ``multi_worker_mirrored``, ``horovod`` or ``parameter_server``.
        workers: Processes that compute gradients.
        servers: Parameter servers; 0 for the other kinds.
        script: The training script.
        arguments: Its own command line.
        run_options: Options of ``tfvolta run``; None runs the script under plain Python.
        gpus: Indices of the GPUs that workers may get.
        share_gpus: Whether several workers may get one.
        bind: Whether workers get processors of their own.
        max_restarts: How often all workers are started again.
        grace_seconds: Time that workers get to end by themselves.
        log_directory: Folder for a file per worker, or None.
        quiet: Whether the launcher says nothing of its own but what went wrong.
        run_directory: Folder of runs in which workers write evidence; None for plain scripts.
    """

    kind: str
    workers: int
    script: str
    arguments: tuple[str, ...] = ()
    servers: int = 0
    run_options: Optional[tuple[str, ...]] = None
    gpus: tuple[int, ...] = ()
    share_gpus: bool = False
    bind: bool = True
    max_restarts: int = 0
    grace_seconds: float = GRACE_SECONDS
    log_directory: Optional[Path] = None
    quiet: bool = False
    run_directory: Optional[Path] = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The processes of the run."""
        return tasks_of(self.kind, self.workers, self.servers)

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of every worker."""
        script = (self.script, *self.arguments)
        if self.run_options is None:
            return (sys.executable, *script)
        quiet = ("--quiet",) if self.quiet else ()
        return (sys.executable, "-m", "tfvolta", "run", *self.run_options, *quiet, *script)

    @property
    def as_it_is(self) -> str:
        """What workers without a config do, in one line; empty with a config.

        A script that makes no strategy of its own trains one unrelated model in each worker, and nothing fails.
        """
        if self.run_options is not None:
            return ""
        horovod = self.kind == "horovod"
        given, call = ("HOROVOD_* variables", "hvd.init()") if horovod else ("TF_CONFIG", _STRATEGIES[self.kind])
        return (
            f"no config: workers run {self.script} as it is, with {given} set; each trains a model of its own unless"
            f" the script itself calls {call}."
            f" To have tfvolta apply a config: --config tfvolta:default --kind {self.kind}"
        )


def problems(request: Request, facts: Facts, environ: Mapping[str, str]) -> list[Problem]:
    """Everything for which nothing is started.

    Args:
        request: What is to be launched.
        facts: This machine.
        environ: Of the launcher.
    """
    found = already_started(environ)
    found += _numbers(request)
    if not found:
        gpus = too_few(request.tasks, request.gpus, request.share_gpus)
        found += [] if gpus is None else [gpus]
    unusable = fault(facts) if request.kind == "horovod" else None
    return found if unusable is None else [*found, unusable]


def _numbers(request: Request) -> list[Problem]:
    most = f"from 1 to {_MOST_WORKERS}"
    grace = request.grace_seconds
    checks = (
        (
            f"--workers {request.workers}",
            1 <= request.workers <= _MOST_WORKERS,
            most,
            "a run has a worker",
            "--workers 2",
        ),
        (
            f"--max-restarts {request.max_restarts}",
            request.max_restarts >= 0,
            "0 or more",
            "0 starts nothing again",
            "--max-restarts 0",
        ),
        (
            f"--grace-seconds {grace:g}",
            grace >= 0 and math.isfinite(grace),
            "0 or more",
            "0 ends workers at once",
            f"--grace-seconds {GRACE_SECONDS:g}",
        ),
    )
    found = [
        Problem(words.split()[0], expected, words.split()[1], why, fix)
        for words, good, expected, why, fix in checks
        if not good
    ]
    if request.kind == "parameter_server" and not 1 <= request.servers <= _MOST_WORKERS:
        why = "variables live on parameter servers"
        found.append(Problem("--ps", f"from 1 to {_MOST_WORKERS}", str(request.servers), why, fix="--ps 1"))
    if request.kind != "parameter_server" and request.servers:
        why = f"strategy.kind: {request.kind} keeps its variables in the workers"
        fix = "leave --ps out, or set --kind parameter_server"
        found.append(Problem("--ps", "none", str(request.servers), why, fix))
    return found
