"""``tfvolta batch-size``: the largest and the fastest batch of a training script, found by trying.

Each size is tried in a process of its own, by a few real training steps of the script with its batches replaced, under
a time limit and a memory limit; what a trial does, crashes and hangs included, cannot hurt this one. The script runs up
to its first fit each time, with all that it does before.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Optional

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cli.config_arguments import add_config_arguments

_OF_AVAILABLE = 0.8  # of the host's memory, so that the kernel need not kill anybody


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("batch-size", help="find the largest and the fastest batch", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument(
        "--start", metavar="N", help="first size (default: where there is a GPU from an estimate of memory, else 32)"
    )
    parser.add_argument("--most", metavar="N", help="largest size to try")
    parser.add_argument("--steps", metavar="N", default="5", help="steps to time in a trial (default: 5)")
    parser.add_argument("--trial-seconds", metavar="S", default="300", help="time limit of one trial (default: 300)")
    parser.add_argument("--seconds", metavar="S", default="3600", help="no trial begins after so long (default: 3600)")
    parser.add_argument(
        "--host-memory-mb", metavar="MB", help="memory limit of a trial's processes (default: 80 %% of what is free)"
    )
    parser.add_argument("--choose", default="fastest", help="the size that is written: fastest (default) or largest")
    parser.add_argument("--hold", metavar="N", help="rows of one update to hold, by adding up gradients over batches")
    parser.add_argument("--output", metavar="FILE", help="write a config with the size and what belongs to it")
    parser.add_argument("--agree", metavar="FILE", nargs="+", help="results of several workers: the size that all have")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("script", nargs="?", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was found; 1 where no batch fits.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
    """
    from tfvolta.cli.output_file import check_output
    from tfvolta.tune.batch_result import BatchResult, agree

    reader = ArgumentReader("This batch size cannot be looked for.")
    numbers = _numbers(arguments, reader)
    reader.choice("--choose", arguments.choose, ("fastest", "largest"))
    if arguments.agree and arguments.script:
        reader.problem("--agree", "results alone", f"a script as well: {arguments.script}", fix="leave the script out")
    if not arguments.agree and not arguments.script:
        reader.problem(
            "script", "a training script, or --agree FILE FILE", "nothing", fix="tfvolta batch-size train.py"
        )
    reader.done()
    check_output("--output", arguments.output)  # before the trials, which take minutes
    result: BatchResult
    result = agree([_read(path) for path in arguments.agree]) if arguments.agree else _search(arguments, numbers)
    result = _advised(arguments, numbers, result)
    print(json.dumps(result.to_json(), indent=2) if arguments.json else _text(result), flush=True)
    _write(arguments, result)
    return 0 if result.largest is not None else 1


def _numbers(arguments: argparse.Namespace, reader: ArgumentReader) -> dict[str, Optional[float]]:
    whole = {"start": arguments.start, "most": arguments.most, "steps": arguments.steps, "hold": arguments.hold}
    found = {name: reader.number(f"--{name}", text, whole=True) for name, text in whole.items()}
    for name in ("trial_seconds", "seconds", "host_memory_mb"):
        found[name] = reader.number(f"--{name.replace('_', '-')}", getattr(arguments, name))
    return found


def _search(arguments: argparse.Namespace, numbers: dict[str, Optional[float]]) -> Any:
    from tfvolta.cli.batch_start import first_size
    from tfvolta.cli.config_arguments import load_from
    from tfvolta.script.source import check_script
    from tfvolta.tune.batch_finder import Allowance, find
    from tfvolta.tune.one_process import refuse_several
    from tfvolta.tune.trial_process import TrialProcess, available_bytes
    from tfvolta.tune.trial_request import TrialRequest

    config = load_from(arguments)
    refuse_several(
        config,
        "Several processes cannot be tried from here.",
        "a trial is one process, and workers that train in step have batches of one size",
        "on each worker: tfvolta batch-size --set strategy.kind=default --json train.py > worker-0.json"
        "; then tfvolta batch-size --agree worker-*.json; fit.batch_size is the sum over all workers",
    )
    check_script(arguments.script)
    limit_mb, free = numbers["host_memory_mb"], available_bytes()
    limit = int(limit_mb * 2**20) if limit_mb is not None else None if free is None else int(free * _OF_AVAILABLE)
    strict = ["run.strict=false"] if arguments.no_strict else []
    request = TrialRequest(
        arguments.config,
        (*arguments.set, *strict),
        arguments.script,
        tuple(arguments.arguments),
        batch=0,
        steps=int(numbers["steps"] or 1),
        warmup_steps=2,
        answer="",
    )
    most = None if numbers["most"] is None else int(numbers["most"])
    began = time.monotonic()
    first = first_size(request, config, numbers["trial_seconds"] or 0.0) if numbers["start"] is None else None
    start, stride = (int(numbers["start"] or 1), None) if first is None else (first.size, first.stride)
    left = max((numbers["seconds"] or 0.0) - (time.monotonic() - began), 0.0)
    allowance = Allowance(start, most, seconds=left, stride=stride)
    process = TrialProcess(numbers["trial_seconds"] or 0.0, limit)
    return find(request, allowance, process.run, _tell)


def _read(path: str) -> Any:
    from tfvolta.errors import ConfigError, Problem

    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = Problem(f"--agree {path}", "a file that tfvolta batch-size --json has printed", str(error))
        raise ConfigError("A result cannot be read.", [problem]) from error


def _advised(arguments: argparse.Namespace, numbers: dict[str, Optional[float]], result: Any) -> Any:
    """The result with what belongs to the chosen size."""
    import dataclasses

    from tfvolta.tune.batch_advice import advise, holding
    from tfvolta.tune.batch_search import MULTIPLE

    chosen = result.largest if arguments.choose == "largest" else result.fastest or result.largest
    if chosen is None:
        return result
    trained = next((each.trained for each in result.trials if each.trained is not None), None)
    pair = holding(result.largest, int(numbers["hold"]), MULTIPLE) if numbers["hold"] is not None else (chosen, 1)
    if pair is None:
        print(f"tfvolta: no batch that fits divides {numbers['hold']:.0f} rows; nothing is added up.", file=sys.stderr)
        pair = (chosen, 1)
    return dataclasses.replace(result, advice=advise(pair[0], trained, pair[1]))


def _write(arguments: argparse.Namespace, result: Any) -> None:
    from tfvolta.cli.output_file import cannot_write
    from tfvolta.tune.batch_result import config_text

    if arguments.output is None or result.advice is None:
        return
    measured = f"largest {result.largest}, fastest {result.fastest}; limited by {result.limit}"
    if arguments.set:
        measured += "; found with " + shlex.join(f"--set={each}" for each in arguments.set) + ", which belongs to it"
    base = (
        arguments.config
        if arguments.config is None or ":" in arguments.config
        else str(Path(arguments.config).absolute())
    )
    try:
        Path(arguments.output).write_text(config_text(result.advice, base, measured), encoding="utf-8")
    except OSError as error:
        raise cannot_write("--output", arguments.output, error) from error


def _tell(trial: Any) -> None:
    """Says how a trial ended, while the others go on."""
    rate = f"{trial.examples_per_second:.1f} examples/s" if trial.examples_per_second else ""
    words = ", ".join(filter(None, (trial.ending.value, rate, trial.reason.splitlines()[0] if trial.reason else "")))
    print(f"tfvolta: batch {trial.batch}: {words} ({trial.seconds:.1f} s)", file=sys.stderr, flush=True)


def _text(result: Any) -> str:
    if result.largest is None:
        return f"No batch fits. {result.limit[:1].upper()}{result.limit[1:]}"
    lines = [
        f"largest batch: {result.largest}",
        f"fastest batch: {result.fastest if result.fastest is not None else 'not measured'}",
        *(f"  {batch}: {rate:.1f} examples/s" for batch, rate in sorted(result.rates.items())),
        f"limited by {result.limit}",
    ]
    if result.advice is not None:
        every = f", reduce_every {result.advice.reduce_every}" if result.advice.reduce_every > 1 else ""
        lines += [f"chosen: batch {result.advice.batch}{every}", *result.advice.reasons]
    return "\n".join(lines)
