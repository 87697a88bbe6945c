"""``tfvolta facts``: what this machine or a recorded one is, without TensorFlow, and recording it for use elsewhere."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Optional


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("facts", help="show or record what this machine is", description=__doc__)
    parser.add_argument("--record", metavar="FILE", help="write the facts as JSON, to replay them elsewhere")
    parser.add_argument("--replay", metavar="NAME|FILE", help="a recorded machine, such as dgx1, instead of this one")
    parser.add_argument("--stack", metavar="STACK", help="keras3, tf_keras or keras2 instead of the one found")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the facts and what does not fit together; 2 where they cannot be read or written."""
    from tfvolta.errors import FactsError
    from tfvolta.facts.description import describe
    from tfvolta.facts.record import record
    from tfvolta.facts.support import missing_libraries, unsupported_gpus

    try:
        facts = _facts(arguments.replay, getattr(arguments, "stack", None))
        file = record(facts, arguments.record) if arguments.record else None
    except FactsError as error:
        print(f"tfvolta facts: {error}", file=sys.stderr)
        return error.exit_code
    if arguments.json:
        print(json.dumps(facts.model_dump(mode="json"), indent=2))
        return 0
    print("\n".join(describe(facts)))
    for name in missing_libraries(facts):
        print(f"missing  {name}: TensorFlow would leave the GPUs alone")
    for problem in unsupported_gpus(facts):
        print(f"problem  {problem}")
    if file is not None:
        print(f"recorded {file}")
    return 0


def _facts(name: Optional[str], stack: Optional[str]) -> Any:
    from tfvolta.facts.probe import checked_stack, probe
    from tfvolta.facts.record import load

    if name is None:
        return probe(stack=stack)
    facts = load(name)
    return facts if stack is None else facts.model_copy(update={"stack": checked_stack(stack)})
