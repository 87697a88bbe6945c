"""``tfvolta ladder``: what each section of a config gains on a training script, measured one after another.

The script runs as it is, without any setting; then with the precision of the config, then with its kernels, with XLA,
with its memory settings, and so on to the whole config. Each run is a process of its own under a time limit, with the
same monitors. Rungs take turns and are repeated, so that a ratio has an interval, and a difference that the spread
explains is called none. The evidence and the output of every run are kept in a folder of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Optional

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cli.config_arguments import add_config_arguments, load_from

_DRIVER = "/dev/nvidiactl"  # there in a container that hides the driver's management library too


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("ladder", help="measure what each section of a config gains", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument("--repeats", metavar="N", default="5", help="runs of each rung (default: 5, enough to decide)")
    parser.add_argument("--steps", metavar="N", help="end each fit after so many steps (default: the script's own end)")
    parser.add_argument("--run-seconds", metavar="S", default="1800", help="time limit of one run (default: 1800)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was found; 1 where a rung never ended well.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
        PlanError: The config cannot be applied here.
    """
    from tfvolta.facts.probe import probe
    from tfvolta.ladder.ladder import climb
    from tfvolta.ladder.process import RungProcess
    from tfvolta.ladder.result import LadderResult
    from tfvolta.ladder.rung import rungs_of
    from tfvolta.script.source import check_script
    from tfvolta.tune.one_process import refuse_several

    numbers = _numbers(arguments)
    config = load_from(arguments)
    refuse_several(
        config,
        "Several processes cannot climb a ladder.",
        "a rung is one process, and workers that train in step are started by tfvolta launch",
        "tfvolta ladder --set strategy.kind=default train.py",
    )
    check_script(arguments.script)
    plan = _plan(config, probe(), arguments.script)
    rungs, skipped = rungs_of(plan, hidden_gpu=os.path.exists(_DRIVER))
    folder = _folder(config)
    process = RungProcess(_request(arguments, folder, numbers["steps"]), numbers["run_seconds"] or 0.0, folder)
    about = _about(arguments, config, plan.facts, numbers["steps"])
    runs: list[Any] = []

    def told(done: Any) -> None:
        runs.append(done)
        _tell(done)
        _write(LadderResult.of(rungs, runs, skipped, about), folder)  # a ladder that is killed leaves what it has

    try:
        climb(rungs, int(numbers["repeats"] or 1), process.run, told)
    except KeyboardInterrupt:
        print(f"tfvolta: interrupted after {len(runs)} runs; what they show is kept", file=sys.stderr)
        _finish(LadderResult.of(rungs, runs, skipped, about), folder, arguments.json)
        return 130
    return _finish(LadderResult.of(rungs, runs, skipped, about), folder, arguments.json)


def _about(arguments: argparse.Namespace, config: Any, facts: Any, steps: Optional[float]) -> dict[str, Any]:
    """Script, config and machine, by which a report finds the ladder of its run again."""
    return {
        "script": arguments.script,
        "path": os.path.abspath(arguments.script),
        "arguments": list(arguments.arguments),
        "config": arguments.config or "tfvolta:default",
        "values": config.model_dump(mode="json"),
        "machine": _machine(facts),
        "stack": facts.stack,
        "host": platform.node(),
        "steps": steps,
    }


def _finish(result: Any, folder: Path, as_json: bool) -> int:
    from tfvolta.ladder.table import print_ladder

    path = _write(result, folder)
    if as_json:
        print(path.read_text(encoding="utf-8"), end="", flush=True)
    else:
        print_ladder(result, str(path))
    return 1 if result.failed else 0


def _write(result: Any, folder: Path) -> Path:
    """Puts what is known so far into the ladder's file, whole or not at all."""
    from tfvolta.evidence.ladders import FILE_NAME

    path = folder / FILE_NAME
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(f"{json.dumps(result.to_json(), indent=2)}\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def _numbers(arguments: argparse.Namespace) -> dict[str, Optional[float]]:
    reader = ArgumentReader("This ladder cannot be climbed.")
    found = {
        "repeats": reader.number("--repeats", arguments.repeats, whole=True),
        "steps": reader.number("--steps", arguments.steps, whole=True),
        "run_seconds": reader.number("--run-seconds", arguments.run_seconds),
    }
    reader.done()
    return found


def _plan(config: Any, facts: Any, script: str) -> Any:
    """The plan of the whole config, which has to work here."""
    from tfvolta.plan import make_plan
    from tfvolta.script.source import layers_named_in

    plan = make_plan(config, facts, dict(os.environ), layers_named_in(script))
    plan.check()
    return plan


def _folder(config: Any) -> Path:
    """A folder of its own for the ladder, in that of the runs."""
    from tfvolta.evidence.store import EvidenceStore, new_run_id

    return EvidenceStore.create(config.run.directory, f"ladder-{new_run_id()}").directory


def _request(arguments: argparse.Namespace, folder: Path, steps: Optional[float]) -> Any:
    from tfvolta.ladder.request import RungRequest

    strict = ["run.strict=false"] if arguments.no_strict else []
    return RungRequest(
        arguments.config,
        (*arguments.set, *strict),
        str(folder),
        "",
        (),
        arguments.script,
        tuple(arguments.arguments),
        None if steps is None else int(steps),
    )


def _machine(facts: Any) -> str:
    names = [gpu.name for gpu in facts.gpus]
    gpus = ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names)) or "no GPU"
    return f"{facts.host or 'unnamed'}: {gpus}, {facts.cpu.cores} CPU cores"


def _tell(run: Any) -> None:
    """Says how a run went, while the others go on."""
    rate = f"{run.examples_per_second:,.1f} examples/s" if run.examples_per_second else ""
    words = ", ".join(filter(None, (run.reason.splitlines()[0] if run.reason else "done", rate)))
    print(f"tfvolta: {run.rung}, run {run.repeat}: {words} ({run.seconds:.1f} s)", file=sys.stderr, flush=True)
