"""``tfvolta bench``: well-known models under any config, contenders against each other, and what the figures are worth.

Contenders are warm processes that take turns epoch by epoch in random order, so that what disturbs the machine
disturbs all alike. A gain counts as a win only where its interval holds no loss and training's loss stays in the band
that seeds give.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import Any, Optional

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cli.config_arguments import add_config_arguments

_SIZES = ("batch", "image_size", "tokens", "layers", "width", "vocabulary", "classes")
_COUNTS = (("steps", "20", "steps of an epoch"), ("warmup_epochs", "2", "epochs that do not count"))


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("bench", help="measure well-known models under configs", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument(
        "--against",
        metavar="WORDS",
        action="append",
        default=[],
        help="another contender: a config's file, SECTION.KEY=VALUE, name=, stack=, workers=, batch=, python=; "
        "none is the untouched script; may be repeated",
    )
    for name in _SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", help="size of the workload")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, for a CPU")
    parser.add_argument("--data", metavar="DATA", help="FILE.npz or module:function instead of synthetic data")
    parser.add_argument("--rounds", metavar="N", default="9", help="measured epochs of each contender (default: 9)")
    for name, default, text in _COUNTS:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, metavar="N", default=default, help=f"{text} (default: {default})")
    parser.add_argument("--seeds", metavar="N,N", help="a process each (default: 0; with gates 0,1,2)")
    parser.add_argument("--workers", metavar="N", help="processes of the contender of --config, or of the last stage")
    parser.add_argument("--python", metavar="FILE", help="interpreter of all contenders but those with python=")
    parser.add_argument("--limit", metavar="S", default="600", help="seconds for a start or a turn (default: 600)")
    parser.add_argument("--together", action="store_true", help="contenders start and compile at the same time")
    parser.add_argument("--gate", action="store_true", help="exit code 1 unless every contender is a win")
    parser.add_argument("--least-gain", metavar="PERCENT", default="0", help="what a win gains at least (default: 0)")
    parser.add_argument("--stages", action="store_true", help="baseline, one device, one node, several nodes, gated")
    parser.add_argument("--logical-devices", metavar="N", help="devices that the CPU pretends to be, for --stages")
    parser.add_argument("--scaling", default="weak", help="weak (default): the batch grows with the devices; or strong")
    parser.add_argument("--all-stages", action="store_true", help="all side by side, whatever is refused")
    parser.add_argument("--list", action="store_true", help="print the models")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="say nothing while measuring")
    parser.add_argument("model", nargs="?", help="such as resnet50, bert_large, lstm")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures; 1 where a contender failed or a gate refuses.

    Raises:
        ConfigError: Arguments or configs cannot be used; all problems at once.
        PlanError: A config cannot work here.
    """
    from tfvolta.bench.bench import Bench
    from tfvolta.bench.stages import refused

    if arguments.list:
        return _print_list()
    plan, contenders, way = _asked(arguments)
    quiet = arguments.quiet
    bench = Bench(plan, lambda text: None if quiet else print(f"tfvolta: {text}", file=sys.stderr, flush=True))
    result = bench.compare(contenders) if way is None else bench.climb(way, arguments.all_stages)
    _show(result, plan, arguments)
    failed = any(entry.figures is None for entry in result.entries)
    lost = arguments.gate and not all(comparison.wins for comparison in result.comparisons)
    return 1 if failed or lost or refused(result.gates) else 0


def _print_list() -> int:
    from tfvolta.bench.workloads.registry import WORKLOADS

    for name, workload in WORKLOADS.items():
        sizes = ", ".join(f"{size.replace('_', ' ')} {value:,}" for size, value in workload.sizes.to_json().items())
        print(f"{name:16} {workload.description} ({sizes})")
    return 0


def _asked(arguments: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The plan, and the contenders or the stages."""
    from tfvolta.bench.bench import Plan
    from tfvolta.bench.contender import Course
    from tfvolta.bench.given import check
    from tfvolta.bench.workloads.registry import find
    from tfvolta.facts.probe import probe

    reader = ArgumentReader("This bench cannot be run.")
    numbers = _numbers(arguments, reader)
    reader.choice("--scaling", arguments.scaling, ("weak", "strong"))
    if arguments.model is None:
        reader.problem("model", "a model", "nothing", fix="tfvolta bench resnet50; tfvolta bench --list names them")
    reader.done()
    workload = find(arguments.model)
    changes = {name: int(numbers[name] or 0) for name in _SIZES if numbers[name] is not None}
    _check_sizes(workload, changes)
    if arguments.data is not None:
        check(arguments.data)
    if arguments.python is not None and not os.access(arguments.python, os.X_OK):
        reader.problem("--python", "a program that can be run", arguments.python)
        reader.done()
    rounds, warmup, steps = (int(numbers[name] or 0) for name in ("rounds", "warmup_epochs", "steps"))
    course = Course(workload.name, workload.sized(changes, arguments.tiny), steps, warmup, rounds, arguments.data)
    facts = probe()
    contenders, way = _contenders(arguments, numbers, course.sizes.batch)
    _check_contenders(contenders if way is None else [way.baseline, way.tuned], facts, way is not None)
    plan = Plan(
        workload,
        course,
        _seeds(arguments, reader),
        _folder(arguments, contenders),
        ("tfvolta", *sys.argv[1:]),
        facts,
        numbers["limit"] or 0.0,
        arguments.together,
        (numbers["least_gain"] or 0.0) / 100,
    )
    return plan, contenders, way


def _numbers(arguments: argparse.Namespace, reader: ArgumentReader) -> dict[str, Optional[float]]:
    whole = (*_SIZES, "rounds", "steps", "warmup_epochs", "workers", "logical_devices")
    found = {name: reader.number(f"--{name.replace('_', '-')}", getattr(arguments, name), whole=True) for name in whole}
    found["limit"] = reader.number("--limit", arguments.limit)
    found["least_gain"] = reader.number("--least-gain", arguments.least_gain, least=0)
    return found


def _seeds(arguments: argparse.Namespace, reader: ArgumentReader) -> tuple[int, ...]:
    """The seeds; several where a gate needs a band."""
    text = arguments.seeds or ("0,1,2" if arguments.stages or arguments.gate else "0")
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        reader.problem("--seeds", "whole numbers between commas, such as 0,1,2", text)
        reader.done()
    return tuple(dict.fromkeys(int(word) for word in words))


def _check_sizes(workload: Any, changes: dict[str, int]) -> None:
    reader = ArgumentReader(f"{workload.name} has no such size.")
    for name in changes:
        if name not in workload.sizes.names:
            has = ", ".join(f"--{each.replace('_', '-')}" for each in workload.sizes.names)
            reader.problem(f"--{name.replace('_', '-')}", f"a size of {workload.name}: {has}", str(changes[name]))
    reader.done()


def _contenders(arguments: argparse.Namespace, numbers: dict[str, Optional[float]], batch: int) -> tuple[Any, Any]:
    """The contenders, the reference first; and the way, where stages are asked for."""
    from tfvolta.bench.contender import UNTOUCHED, Contender, parse
    from tfvolta.bench.stages import Way
    from tfvolta.errors import ConfigError, Problem

    strict = ("run.strict=false",) if arguments.no_strict else ()
    overrides = (*arguments.set, *strict)
    workers = int(numbers["workers"] or 1)
    name = arguments.config or "default"
    reference = Contender(
        os.path.basename(name),
        arguments.config,
        overrides,
        workers=1 if arguments.stages else workers,
        python=arguments.python,
    )
    others = [parse(words, reference) for words in arguments.against]
    if not arguments.stages:
        return [reference, *others], None
    if len(others) > 1:
        problem = Problem("--against", "one tuned config for --stages", f"{len(others)} contenders")
        raise ConfigError("Stages have one config to show.", [problem])
    tuned = others[0] if others else reference
    baseline = reference if others else Contender(UNTOUCHED, UNTOUCHED, python=arguments.python)
    logical = numbers["logical_devices"]
    several = int(numbers["workers"]) if numbers["workers"] is not None else None
    way = Way(baseline, tuned, batch, int(logical) if logical else None, several, arguments.scaling == "weak")
    return [baseline, tuned], way


def _check_contenders(contenders: Any, facts: Any, staged: bool) -> None:
    """Refuses what every process would refuse, before one is started.

    Raises:
        ConfigError: A contender cannot be used.
        PlanError: A config cannot work on this machine.
    """
    from tfvolta.bench.contender import problems
    from tfvolta.errors import ConfigError, PlanError, Problem
    from tfvolta.plan import make_plan

    found = [] if staged else problems(contenders, os.environ)
    if found:
        raise ConfigError(f"Nothing was measured: {len(found)} problem{'s' * (len(found) > 1)}.", found)
    refused: list[Problem] = []
    for contender in contenders:
        config = contender.load()
        if config is not None and contender.workers == 1 and contender.python is None and not staged:
            own = facts if contender.stack is None else facts.model_copy(update={"stack": contender.stack})
            refused += make_plan(config, own, dict(os.environ)).refusals
    if refused:
        raise PlanError(f"Nothing was measured: {len(refused)} problem{'s' * (len(refused) > 1)}.", refused)


def _folder(arguments: argparse.Namespace, contenders: Any) -> Any:
    """A new folder below the run directory."""
    from tfvolta.evidence.store import EvidenceStore, new_run_id

    config = next((found for found in (contender.load() for contender in contenders) if found is not None), None)
    directory = arguments.directory or ("runs" if config is None else config.run.directory)
    return EvidenceStore.create(directory, f"{new_run_id()}-bench").directory


def _show(result: Any, plan: Any, arguments: argparse.Namespace) -> None:
    from tfvolta.bench.printing import print_result
    from tfvolta.bench.result import FILE_NAME

    if arguments.json:
        print(json.dumps(result.model_dump(mode="json"), indent=2), flush=True)
        return
    print_result(result)
    print(f"\nAgain:  {shlex.join(plan.command)}\nSaved:  {plan.folder / FILE_NAME}", flush=True)
