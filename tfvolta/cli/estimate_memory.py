"""``tfvolta estimate memory``: the GPU memory that a script's training takes, before it trains.

The script runs up to its first training step, without a GPU, and its step is traced: nothing is trained. How the
estimate is made, and by how much it missed measured peaks: docs/estimate_memory.md.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Optional


def add_parser(subparsers: Any) -> None:
    """Adds the subject."""
    from tfvolta.cli.script_estimate import add_arguments

    parser = subparsers.add_parser("memory", help="GPU memory of a training, by kind and by layer", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--card", metavar="NAME|GIB", help="say whether it fits, and the largest batch that will")
    parser.add_argument("--xla", metavar="on|off", help="with or without XLA; as the plan decides if left out")
    parser.add_argument("--refine", action="store_true", help="let XLA compile the step and ask it (takes minutes)")
    parser.add_argument("--layers", metavar="N", default="10", help="heavy layers to show (default: 10)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the estimate; 1 where it does not fit the card.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
        EstimateError: The script could not be looked at.
    """
    from tfvolta.cli.argument_reader import ArgumentReader
    from tfvolta.cli.script_estimate import look, read_request, seconds_of
    from tfvolta.footprint.card import card_bytes
    from tfvolta.report.memory import print_memory

    reader = ArgumentReader("The memory cannot be estimated.")
    xla = None if arguments.xla is None else reader.choice("--xla", arguments.xla, ("on", "off"))
    shown = reader.number("--layers", arguments.layers, whole=True, least=0.0)
    request = read_request(arguments, reader, memory=True, refine=arguments.refine)
    card = None if arguments.card is None else card_bytes(arguments.card)
    if xla == "on" and arguments.refine:
        request["overrides"] = [*request["overrides"], "xla.jit=model"]
    request["compare_half"] = card is not None
    found = look(request, seconds_of(arguments), on_gpu=arguments.refine)
    content = summary(found, xla, card, arguments.card)
    if arguments.json:
        print(json.dumps(content, indent=2))
    else:
        print_memory(content, int(shown or 0))
    return 1 if content["card"] and not content["card"]["fits"] else 0


def summary(found: dict[str, Any], xla: Optional[str], card: Optional[int], name: Optional[str]) -> dict[str, Any]:
    """What is printed: the chosen estimate first, and what a card makes of it.

    Args:
        found: From the process that looked.
        xla: ``on``, ``off`` or None for what is planned.
        card: Memory of the card in bytes.
        name: As it was asked for.
    """
    both = found["memory"]
    chosen = {"on": "compiled", "off": "plain", None: both["planned"]}[xla]
    content = {key: value for key, value in found.items() if key not in ("memory", "compared", "tensor_cores")}
    content.update(estimate=both[chosen], other=both["plain" if chosen == "compiled" else "compiled"], card=None)
    refined = found.get("refined") or {}
    if "total_bytes" in refined and both[chosen]["compiled"]:
        content["refined"]["peak_bytes"] = refined["total_bytes"]
    if card is not None:
        content["card"] = _on_card(found, chosen, card, str(name))
    return content


def _on_card(found: dict[str, Any], chosen: str, card: int, name: str) -> dict[str, Any]:
    estimate = found["memory"][chosen]
    other = found.get("compared")
    largest = None
    if other is not None and other[chosen]["batch"] != estimate["batch"]:
        low, high = sorted((other[chosen], estimate), key=lambda each: each["batch"])
        slope = (high["device"] - low["device"]) / (high["batch"] - low["batch"])
        largest = max(0, int(high["batch"] + (card - high["device"]) / slope)) if slope > 0 else None
    return {
        "name": name,
        "bytes": card,
        "fits": estimate["device"] <= card,
        "sure": abs(estimate["device"] - card) > estimate["error_percent"] / 100 * estimate["peak"],
        "largest_batch": largest,
    }
