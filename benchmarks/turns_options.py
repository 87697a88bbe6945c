"""How a driver of turns gives them, and the command line that says so."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Options:
    """How turns are given.

    Attributes:
        rounds: Most rounds.
        discard: First rounds that are kept as rows and left out of the figures.
        warm_up: ``together``; ``leaders``, the references first and then the others; or ``serial``, one after the other
            when all are built.
        order: ``shuffled`` or ``abba``.
        groups: ``sequential``, each up alone, or ``together``.
        ready_seconds: Limit for a process to become ready.
        turn_seconds: Limit for a turn.
        limit_seconds: After which no further turn is given, from the start of the measurement.
        profile: Whether each process gets a last turn under a profiler.
        seed: Of the order.
    """

    rounds: int = 8
    discard: int = 1
    warm_up: str = "together"
    order: str = "shuffled"
    groups: str = "sequential"
    ready_seconds: float = 240.0
    turn_seconds: float = 60.0
    limit_seconds: float = 1e9
    profile: bool = False
    seed: int = 0


def add_arguments(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Adds the options of turns to a command line; ``defaults`` take the place of those of ``Options``."""
    base = dataclasses.replace(Options(), **defaults)
    choices = {"warm_up": ("together", "leaders", "serial"), "order": ("shuffled", "abba")}
    choices["groups"] = ("sequential", "together")
    for field in dataclasses.fields(Options):
        flag, value = f"--{field.name.replace('_', '-')}", getattr(base, field.name)
        if field.name == "profile":
            parser.add_argument(flag, action="store_true", default=value, help="a last turn under a profiler")
        elif field.name in choices:
            parser.add_argument(flag, choices=choices[field.name], default=value, help="default %(default)s")
        else:
            parser.add_argument(flag, type=type(value), default=value, help="default %(default)s")


def options(arguments: argparse.Namespace) -> Options:
    """The options of a command line made with ``add_arguments``."""
    return Options(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Options)})
