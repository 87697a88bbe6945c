"""``tfvolta estimate tensor-cores``: which layers of a script's model Tensor Cores serve, before it trains.

A script runs up to its first training step, without a GPU; a saved model is loaded. Rules and sources:
docs/estimate_tensor_cores.md.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Optional


def add_parser(subparsers: Any) -> None:
    """Adds the subject."""
    from tfvolta.cli.script_estimate import add_arguments

    parser = subparsers.add_parser("tensor-cores", help="which layers Tensor Cores serve", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--input-shape", metavar="N,N,...", help="of a saved model whose inputs are open, no batch")
    parser.add_argument("--layers", metavar="N", default="20", help="layers to show (default: 20)")
    parser.add_argument("--at-least", metavar="PERCENT", help="exit with 1 where a smaller share is served well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the audit; 1 where less than ``--at-least`` is served.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
        EstimateError: The script could not be looked at.
    """
    from tfvolta.cli.argument_reader import ArgumentReader
    from tfvolta.cli.script_estimate import look, read_request, seconds_of
    from tfvolta.report.tensor_cores import print_tensor_cores

    reader = ArgumentReader("The use of Tensor Cores cannot be told.")
    least = reader.number("--at-least", arguments.at_least, most=100.0)
    shown = reader.number("--layers", arguments.layers, whole=True, least=0.0)
    shape = _shape(reader, arguments.input_shape)
    request = read_request(arguments, reader, memory=False, input_shape=shape)
    found = look(request, seconds_of(arguments))
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print_tensor_cores(found, int(shown or 0))
    return 1 if least is not None and found["tensor_cores"]["served_percent"] < least else 0


def _shape(reader: Any, text: Optional[str]) -> Optional[tuple[int, ...]]:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if all(word.isdigit() and int(word) > 0 for word in words):
        return tuple(int(word) for word in words)
    reader.problem("--input-shape", "whole numbers between commas, such as 224,224,3", text or "nothing")
    return None
