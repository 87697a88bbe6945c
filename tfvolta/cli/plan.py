"""``tfvolta plan``: what a config will do on this machine or a recorded one, without doing it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Optional

from tfvolta.cli.config_arguments import add_config_arguments, load_from


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("plan", help="show what a config will do, step by step", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument("--facts", metavar="NAME|FILE", help="a recorded machine, such as dgx1, instead of this one")
    parser.add_argument("--stack", metavar="STACK", help="keras3, tf_keras or keras2 instead of the one found")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("script", nargs="?", help="a script, to find conflicts with the layers that it names")
    parser.set_defaults(run=run)


def _facts(name: Optional[str], stack: Optional[str]) -> Any:
    from tfvolta.facts.probe import checked_stack, probe
    from tfvolta.facts.record import load

    if name is None:
        return probe(stack=stack)
    facts = load(name)
    return facts if stack is None else facts.model_copy(update={"stack": checked_stack(stack)})


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan; 2 where it would be refused."""
    from tfvolta.errors import PlanError
    from tfvolta.plan import make_plan
    from tfvolta.report.plan import print_plan
    from tfvolta.script.source import check_script, layers_named_in

    config = load_from(arguments)
    if arguments.script:
        check_script(arguments.script)
    layers = layers_named_in(arguments.script) if arguments.script else frozenset()
    # A recorded machine is another machine: this environment says nothing about it.
    environ = {} if arguments.facts else dict(os.environ)
    plan = make_plan(config, _facts(arguments.facts, arguments.stack), environ, layers)
    if arguments.json:
        print(json.dumps({**plan.to_json(), "refused": bool(plan.refusals)}, indent=2))
    else:
        print_plan(plan)
    if plan.refusals:
        if not arguments.json:
            sys.stdout.flush()
        return PlanError.exit_code
    return 0
