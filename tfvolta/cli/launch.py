"""``tfvolta launch``: the workers of a run on this machine, started, watched and ended together."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Optional

from tfvolta.cli.config_arguments import add_config_arguments, load_from

_WITHOUT_CONFIG = (
    "the embedded default where only --set, --directory or --no-strict is given; with none of them workers run the "
    "script as it is, under plain Python"
)
_KINDS = ("auto", "multi_worker_mirrored", "horovod", "parameter_server")


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("launch", help="start the workers of a run on this machine", description=__doc__)
    parser.add_argument("--workers", metavar="N", type=int, required=True, help="processes that compute gradients")
    parser.add_argument("--ps", metavar="M", type=int, help="parameter servers (default: as in the config, or 1)")
    add_config_arguments(parser, without=_WITHOUT_CONFIG)
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        default="auto",
        help="instead of strategy.kind of the config, or of a script run as it is",
    )
    parser.add_argument(
        "--max-restarts", metavar="R", type=int, default=0, help="start all again so often (default: 0)"
    )
    parser.add_argument("--grace-seconds", metavar="S", type=float, help="time to end by themselves (default: 15)")
    parser.add_argument("--bind", choices=("auto", "none"), default="auto", help="processors of their own for workers")
    parser.add_argument("--share-gpus", action="store_true", help="allow more workers than GPUs")
    parser.add_argument("--log-directory", metavar="DIR", help="write a file per worker too")
    parser.add_argument(
        "--print", dest="engine", choices=("slurm", "horovodrun"), help="print what another engine needs"
    )
    parser.add_argument("--nodes", metavar="K", type=int, default=1, help="machines, for --print (default: 1)")
    parser.add_argument(
        "--sbatch", metavar="OPTION", action="append", default=[], help="such as --sbatch=--time=1:00:00"
    )
    parser.add_argument(
        "--facts", metavar="NAME|FILE", help="the machines for --print, such as dgx1, instead of this one"
    )
    parser.add_argument("--json", action="store_true", help="print how the launch ended as JSON, on the last line")
    parser.add_argument("--quiet", action="store_true", help="print nothing of tfvolta's own but what went wrong")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Launches; the exit code of the first worker that failed, or 2 where nothing can be started.

    Raises:
        LaunchError: It cannot be started as asked for; all problems at once.
        ConfigError: The config or the script cannot be used.
        PlanError: The plan of a worker is refused.
    """
    from tfvolta.errors import LaunchError
    from tfvolta.launch.launch import Launcher
    from tfvolta.launch.request import problems
    from tfvolta.script.source import check_script

    _check_printing(arguments)
    config = loaded(arguments)
    check_script(arguments.script)
    facts = _facts(arguments)
    request = requested(arguments, config, facts)
    if arguments.engine is not None:
        print(_printed(arguments, request, facts))
        return 0
    found = problems(request, facts, os.environ)
    if found:
        raise LaunchError(f"Nothing was started: {len(found)} problem{'s' * (len(found) > 1)}.", found)
    if config is not None:
        _check_plan(config, request, facts)
    sys.stdout.flush()
    outcome = Launcher(request, facts, os.environ).run()
    if arguments.json:
        print(json.dumps(_summary(outcome)), flush=True)
    return outcome.code


def _check_printing(arguments: argparse.Namespace) -> None:
    """Refuses options of ``--print`` without it, which would say nothing to workers of this machine.

    Raises:
        LaunchError: There are such options.
    """
    from tfvolta.errors import LaunchError, Problem

    given = {"--nodes": str(arguments.nodes) if arguments.nodes != 1 else "", "--sbatch": " ".join(arguments.sbatch)}
    problems = [
        Problem(name, "--print slurm with it", value, "workers are started on this machine alone", "add --print slurm")
        for name, value in given.items()
        if value and arguments.engine is None
    ]
    if problems:
        raise LaunchError("Nothing was started.", problems)


def loaded(arguments: argparse.Namespace) -> Any:
    """The config under which workers run; None for a script alone, which runs under plain Python.

    Raises:
        ConfigError: It cannot be used.
    """
    if not (arguments.config or arguments.set or arguments.directory or arguments.no_strict):
        return None
    if arguments.kind != "auto":
        arguments.set.append(f"strategy.kind={arguments.kind}")
    return load_from(arguments)


def _facts(arguments: argparse.Namespace) -> Any:
    from tfvolta.errors import LaunchError, Problem
    from tfvolta.facts.probe import probe
    from tfvolta.facts.record import load

    if arguments.facts is None:
        return probe()
    if arguments.engine is None:
        why, fix = "workers are started on this machine", "add --print slurm, or leave --facts out"
        problem = Problem("--facts", "--print with it", arguments.facts, why, fix)
        raise LaunchError("Nothing was started.", [problem])
    return load(arguments.facts)


def requested(arguments: argparse.Namespace, config: Any, facts: Any) -> Any:
    """What a command line asks for, as ``tfvolta.launch.request.Request``.

    Raises:
        LaunchError: The config trains in one process, or a folder cannot be made.
    """
    from tfvolta.launch.gpus import chosen_gpus
    from tfvolta.launch.launch import log_folder
    from tfvolta.launch.request import GRACE_SECONDS, Request

    kind = _kind(arguments, config)
    environ = {} if arguments.facts else os.environ
    visible = None if config is None else config.get("devices.visible")
    return Request(
        kind=kind,
        workers=arguments.workers,
        servers=_servers(arguments, config, kind),
        script=arguments.script,
        arguments=tuple(arguments.arguments),
        run_options=None if config is None else _run_options(arguments, config),
        gpus=chosen_gpus(facts, environ, visible),
        share_gpus=arguments.share_gpus,
        bind=arguments.bind == "auto",
        max_restarts=arguments.max_restarts,
        grace_seconds=GRACE_SECONDS if arguments.grace_seconds is None else arguments.grace_seconds,
        log_directory=None if arguments.engine else log_folder(arguments.log_directory),
        quiet=arguments.quiet,
        run_directory=None if config is None else Path(config.run.directory).expanduser().absolute(),
    )


def _kind(arguments: argparse.Namespace, config: Any) -> str:
    """The kind of the command line, or of the config; a script alone is taken for one of MultiWorkerMirroredStrategy.

    Raises:
        LaunchError: The config's kind trains in one process.
    """
    from tfvolta.errors import LaunchError, Problem
    from tfvolta.launch.tasks import KINDS

    if arguments.kind != "auto":
        return str(arguments.kind)
    kind = "multi_worker_mirrored" if config is None else str(config.get("strategy.kind") or "default")
    if kind in KINDS:
        return kind
    problem = Problem(
        where="strategy.kind",
        expected=f"a kind of several processes: {', '.join(KINDS)}",
        received=kind,
        why=f"{kind} trains in one process; each worker would train a model of its own",
        fix="add --kind multi_worker_mirrored, or set strategy.kind in the config; for one process: tfvolta run",
    )
    raise LaunchError("Nothing was started.", [problem])


def _servers(arguments: argparse.Namespace, config: Any, kind: str) -> int:
    if arguments.ps is not None:
        return int(arguments.ps)
    if kind != "parameter_server":
        return 0
    asked: Optional[int] = None if config is None else config.get("cluster.parameter_servers")
    return asked or 1


def _run_options(arguments: argparse.Namespace, config: Any) -> tuple[str, ...]:
    """The options of ``tfvolta run`` in each worker: those of this command line, and what follows from the launch."""
    options = ["--config", arguments.config] if arguments.config else []
    if arguments.directory:
        options += ["--directory", arguments.directory]
    if arguments.no_strict:
        options.append("--no-strict")
    given = list(arguments.set)
    if isinstance(config.get("devices.visible"), (list, tuple)) and config.get("devices.visible"):
        given.append("devices.visible=all")  # the launcher has chosen already, through CUDA_VISIBLE_DEVICES
    return tuple(options + [word for each in given for word in ("--set", each)])


def _check_plan(config: Any, request: Any, facts: Any) -> None:
    """Refuses what every worker would refuse, once.

    Raises:
        PlanError: The plan of the first worker has conflicts.
    """
    from tfvolta.launch.environment import Start, worker_environment
    from tfvolta.launch.ports import Ports
    from tfvolta.plan import make_plan
    from tfvolta.script.source import layers_named_in

    tasks = request.tasks
    with Ports(len(tasks)) as ports:
        port = ports.numbers[0] if request.kind == "horovod" else None
        start = Start("plan", "", addresses=ports.addresses, rendezvous_port=port)
        environ = worker_environment(os.environ, tasks[0], tasks, start)
        make_plan(config, facts, environ, layers_named_in(request.script)).check()


def _printed(arguments: argparse.Namespace, request: Any, facts: Any) -> str:
    from tfvolta.launch.horovodrun import horovodrun_command
    from tfvolta.launch.slurm import sbatch_script

    if arguments.engine == "horovodrun":
        return horovodrun_command(request)
    return sbatch_script(request, facts, arguments.nodes, tuple(arguments.sbatch), os.environ)


def _summary(outcome: Any) -> dict[str, Any]:
    return {
        "exit_code": outcome.code,
        "runs": list(outcome.run_ids),
        "failed": None if outcome.failed is None else str(outcome.failed),
        "workers": [
            {"name": each.name, "exit_code": each.code, "returncode": each.returncode, "step": each.step}
            for each in outcome.ended
        ],
    }
