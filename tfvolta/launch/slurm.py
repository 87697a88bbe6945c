"""A batch script for Slurm that starts the same run on its machines.

Source: sbatch(1) and srun(1).
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Mapping, Sequence

from tfvolta.errors import LaunchError, Problem
from tfvolta.evidence.place import RUN_ID
from tfvolta.facts.schema import Facts
from tfvolta.launch.horovodrun import horovodrun_words
from tfvolta.launch.request import Request

# Of the environment in which the script is written, what decides how training runs.
_CARRIED = (
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "TF_USE_LEGACY_KERAS",
    "KERAS_BACKEND",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
)
# srun waits so long for the others when one task has ended, before it ends them.
_WAIT_SECONDS = 60


def sbatch_script(
    request: Request, facts: Facts, nodes: int, options: Sequence[str], environ: Mapping[str, str]
) -> str:
    """A complete batch script.

    Args:
        request: What is to be started.
        facts: One of the machines; says whether there are GPUs, and how many processors for each.
        nodes: Number of machines.
        options: Further options of sbatch, such as ``--partition=gpu``.
        environ: Of the launcher.

    Raises:
        LaunchError: Such a run cannot be started by Slurm; all problems at once.
    """
    found = _problems(request, facts, nodes)
    if found:
        raise LaunchError("There is no such batch script.", found)
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in [*_resources(request, facts, nodes), *options]), ""]
    lines += ["set -euo pipefail", "", *_environment(request, environ), "", *_start(request, nodes)]
    return "\n".join(lines)


def _problems(request: Request, facts: Facts, nodes: int) -> list[Problem]:
    total = len(request.tasks)
    found = []
    if not 1 <= nodes <= total:
        why = "each machine runs one process at least"
        fix = f"--nodes {total}, or more --workers" if nodes > total else "--nodes 1"
        found.append(Problem("--nodes", f"from 1 to {total}, the number of processes", str(nodes), why, fix))
        return found
    gpus = len(facts.gpus)
    if gpus and math.ceil(request.workers / nodes) > gpus and not request.share_gpus:
        fix = f"--nodes {math.ceil(request.workers / gpus)}, or --facts with the machines of the cluster"
        why = f"{facts.host or 'this machine'} has {gpus} GPU{'s' * (gpus > 1)}"
        found.append(Problem("--nodes", f"at most {gpus} workers a machine", f"{request.workers} on {nodes}", why, fix))
    if request.run_options is None and request.kind != "horovod":
        found.append(
            Problem(
                where="--print slurm",
                expected="a config, so that workers run under `tfvolta run`",
                received="a script alone",
                why="Slurm tells a process its rank and the names of the machines; `tfvolta run` makes TF_CONFIG of it",
                fix=f"add --config tfvolta:default --kind {request.kind}",
            )
        )
    return found


def _resources(request: Request, facts: Facts, nodes: int) -> list[str]:
    total = len(request.tasks)
    each = math.ceil(total / nodes)
    options = [f"--job-name={_job_name(request.script)}", "--output=%x-%j.out", f"--nodes={nodes}"]
    options += [f"--ntasks={total}", f"--ntasks-per-node={each}"]
    if facts.gpus:
        # horovodrun starts its ranks beside Slurm's tasks, so that GPUs belong to the machine.
        options.append(f"--gpus-per-node={each}" if request.kind == "horovod" else "--gpus-per-task=1")
    cpus = facts.cpu.cores // max(each, len(facts.gpus))
    options += [f"--cpus-per-task={cpus}"] if cpus > 0 else []
    return [*options, "--requeue"] if request.max_restarts else options


def _job_name(script: str) -> str:
    """The script's name as one word, which sbatch also makes the name of the output file of."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(script).stem).strip("_") or "train"


def _environment(request: Request, environ: Mapping[str, str]) -> list[str]:
    lines = [f"export {name}={shlex.quote(environ[name])}" for name in _CARRIED if environ.get(name)]
    lines += ["export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1"]
    if request.run_options is not None:
        lines += [
            "# One run for all tasks, and another one each time that Slurm starts the job again.",
            f'export {RUN_ID}="slurm-${{SLURM_JOB_ID}}-${{SLURM_RESTART_COUNT:-0}}"',
        ]
    return lines


def _start(request: Request, nodes: int) -> list[str]:
    if request.kind == "horovod":
        each = math.ceil(request.workers / nodes)
        hosts = f"scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed 's/$/:{each}/' | paste -sd, -"
        return [f"hosts=$({hosts})", *_again(request, " ".join(horovodrun_words(request, "-H", '"$hosts"')))]
    return _again(request, _srun(request))


def _again(request: Request, command: str) -> list[str]:
    """The command, and the job put back into the queue where it failed and may be started again."""
    if not request.max_restarts:
        return [command]
    end = 'scontrol requeue "$SLURM_JOB_ID"'
    again = f"(( ${{SLURM_RESTART_COUNT:-0}} < {request.max_restarts} && code != 2 ))"
    return [f"code=0; {command} || code=$?", f"if (( code != 0 )) && {again}; then {end}; fi", "exit $code"]


def _srun(request: Request) -> str:
    return f"srun --label --kill-on-bad-exit=1 --wait={_WAIT_SECONDS} {shlex.join(request.command)}"
