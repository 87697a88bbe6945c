"""``tfvolta tune``: the settings with which a training script is fastest, found by trying.

The config as it is comes first. Then combinations of settings are tried, each by some seconds of the script's own
training in a process of its own, under limits of time and memory: those first of which most is expected on this
machine, with this model. Slow ones are stopped early. At the end the best runs against the config as it is, and against
itself without each of its settings, in turns. Settings that change results are left alone but for --allow. Trials are
kept: the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any, Optional

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cli.config_arguments import add_config_arguments

_OF_AVAILABLE = 0.8  # of the host's memory, so that the kernel need not kill anybody
_INTERRUPTED = 130
_WHOLE = ("trials", "repeats", "fit")


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("tune", help="find the fastest settings for a script", description=__doc__)
    add_config_arguments(parser)
    add = parser.add_argument
    add("--allow", metavar="GROUPS", default="", help="settings that change results and may be searched, with commas")
    add("--trials", metavar="N", default="24", help="most trials (default: 24)")
    add("--seconds", metavar="S", help="no trial begins after so long")
    add("--trial-seconds", metavar="S", default="600", help="time limit of a trial (default: 600)")
    add("--compile-seconds", metavar="S", default="300", help="time limit of a first training step (default: 300)")
    add("--measure-seconds", metavar="S", default="4", help="training that is timed in a trial (default: 4)")
    add("--host-memory-mb", metavar="MB", help="memory limit of a trial's processes (default: 80 %% of what is free)")
    add("--repeats", metavar="N", default="4", help="rounds in which the best is compared at the end (default: 4)")
    add("--fit", metavar="N", default="1", help="which call of fit is timed (default: 1)")
    add("--try", dest="tries", metavar="KEY=VALUE", action="append", default=[], help="compare this, without a search")
    add("--fresh", action="store_true", help="take no trials from history")
    add("--output", metavar="FILE", help="the tuned config (default: beside the config, as NAME.tuned.yaml)")
    add("--json", action="store_true", help="print the result as JSON")
    add("script", help="the training script")
    add("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was found; 1 where nothing is faster.

    Raises:
        TfvoltaError: Arguments, config or script cannot be used, or what was found cannot be kept.
    """
    _check_optuna()
    from tfvolta.launch.signals import Signals
    from tfvolta.tune.progress import Progress
    from tfvolta.tune.speed_process import InterruptedTrialError
    from tfvolta.tune.tuner import Tuner

    request = _request(arguments)
    progress = Progress()
    with Signals() as signals:
        tuner = Tuner(request, lambda: signals.tells_to_end, progress, _age_seconds())
        try:
            result = tuner.run()
        except InterruptedTrialError:
            progress.close()
            known = 0 if tuner.search is None else len(tuner.search.tried)
            print(f"tfvolta: interrupted; {known} trials are kept, and the same command goes on", file=sys.stderr)
            return _INTERRUPTED
        finally:
            progress.close()
    return _show(arguments, request, result)


def _age_seconds() -> float:
    """Since this process was started. Source: proc(5), /proc/PID/stat, field 22."""
    started = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def _check_optuna() -> None:
    """Says what is missing where the search's engine is not installed.

    Raises:
        ConfigError: It is not.
    """
    if importlib.util.find_spec("optuna") is None:
        from tfvolta.errors import ConfigError, Problem

        fix = "pip install 'tfvolta[tune]'"
        problem = Problem("optuna", "the package that searches", "it is not installed", fix=fix)
        raise ConfigError("There is nothing to search with.", [problem])


def _request(arguments: argparse.Namespace) -> Any:
    """What is asked for.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
    """
    from tfvolta.cli.config_arguments import load_from
    from tfvolta.tune.candidates import groups
    from tfvolta.tune.search import Budget
    from tfvolta.tune.speed_process import Limits
    from tfvolta.tune.trial_process import available_bytes
    from tfvolta.tune.tune_request import TuneRequest

    reader = ArgumentReader("These settings cannot be looked for.")
    number: dict[str, Optional[float]] = {}
    for name in (*_WHOLE, "seconds", "trial_seconds", "compile_seconds", "measure_seconds", "host_memory_mb"):
        given = getattr(arguments, name)
        number[name] = reader.number(f"--{name.replace('_', '-')}", given, whole=name in _WHOLE)
    allowed = tuple(word.strip() for word in arguments.allow.split(",") if word.strip())
    for word in allowed:
        reader.choice("--allow", word, groups(), otherwise="what changes no results is searched anyhow")
    if number["repeats"] == 1:
        reader.problem("--repeats", "2 or more", "1", why="one pair has no interval", fix="--repeats 4")
    reader.done()
    config = load_from(arguments)
    limit_mb, free = number["host_memory_mb"], available_bytes()
    limit = int(limit_mb * 2**20) if limit_mb is not None else None if free is None else int(free * _OF_AVAILABLE)
    return TuneRequest(
        arguments.config,
        (*arguments.set, *(["run.strict=false"] if arguments.no_strict else [])),
        arguments.script,
        tuple(arguments.arguments),
        Path(config.run.directory) / "tune",
        allowed,
        tuple(arguments.tries),
        Budget(int(number["trials"] or 1), number["seconds"] or float("inf")),
        Limits(number["trial_seconds"] or 0.0, number["compile_seconds"] or 0.0, limit),
        measure_seconds=number["measure_seconds"] or 0.0,
        repeats=int(number["repeats"] or 0),
        fit=int(number["fit"] or 1),
        fresh=arguments.fresh,
        command=("tfvolta", *sys.argv[1:]),
    )


def _show(arguments: argparse.Namespace, request: Any, result: Any) -> int:
    """Prints the result before it is written, so that a full disk does not take it away."""
    from tfvolta.tune.keeping import keep
    from tfvolta.tune.summary import print_result

    if not arguments.json:
        print_result(result)
    try:
        result, path = keep(request, result, arguments.output)
    finally:
        if arguments.json:
            print(result.model_dump_json(indent=2), flush=True)
    where = [f"result: {path}"]
    if result.tuned_config is not None:
        where += [f"tuned config: {result.tuned_config}", f"to measure it again: {result.reproduce}"]
    print("\n".join(where), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    return 0 if result.verdict == "gain" else 1
