"""Settings of XLA that exclude each other, found at plan time."""

from __future__ import annotations

from typing import Any, Iterator, Protocol

from tfvolta.errors import Problem


class _Request(Protocol):
    """What the rules look at; see ``tfvolta.conflicts.Request``."""

    def where(self, key: str) -> str:
        """The place that gave a key its value."""

    def get(self, key: str) -> Any:
        """The config's value at a dotted key."""


def compile_limit(request: _Request) -> Iterator[Problem]:
    """A limit for compilations where no step is compiled as a whole."""
    limit, jit = request.get("xla.compile_limit_seconds"), request.get("xla.jit")
    if limit is not None and jit not in ("auto", "model"):
        yield Problem(
            where=request.where("xla.compile_limit_seconds"),
            expected="xla.jit auto or model with compile_limit_seconds",
            received=f"xla.jit: {jit or 'not given'}",
            why="only a step that is compiled as a whole can be tried beforehand; clusters are compiled as they come",
            fix="set xla.jit: auto, or remove compile_limit_seconds",
        )


def remainder(request: _Request) -> Iterator[Problem]:
    """Two keys for the last batch that disagree."""
    drop, asked = request.get("xla.drop_remainder"), request.get("xla.remainder")
    if drop is not None and asked is not None and drop != (asked == "drop"):
        yield Problem(
            where=request.where("xla.remainder"),
            expected="one of xla.remainder and xla.drop_remainder, or two that agree",
            received=f"remainder: {asked} with drop_remainder: {str(drop).lower()}",
            why="drop_remainder: true is the same as remainder: drop, and false the same as keep",
            fix="remove xla.drop_remainder",
        )
