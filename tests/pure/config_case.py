"""What the tests of the config share: writing a config file, loading it, and looking at the problems."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from tfvolta.config import load_config
from tfvolta.errors import ConfigError, Problem

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "configs").glob("*.yaml"))
# Pydantic's own sentences start with these; none may reach a reader.
_RAW = ("Input should", "Extra inputs", "validation error", "pydantic", "Field required", "type=", "Value error",
        "String should", "List should")  # fmt: skip


def write(text: str, name: str = "a.yaml") -> str:
    """Writes a file into the working folder and gives its relative name."""
    folder = os.path.dirname(name)
    if folder:
        os.makedirs(folder, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8", newline="")
    return name


def problems(*arguments: Any, **keywords: Any) -> tuple[Problem, ...]:
    """What load_config refuses, or nothing if it takes everything."""
    try:
        load_config(*arguments, **keywords)
    except ConfigError as error:
        assert error.problems, "an error without problems says nothing"
        assert error.exit_code == 2
        return error.problems
    return ()


def problems_of(text: str, *overrides: str) -> tuple[Problem, ...]:
    """What is wrong with a text, or with overrides on it."""
    return problems(write(text), overrides)


def only(*arguments: Any, **keywords: Any) -> Problem:
    """The one problem that load_config finds."""
    found = problems(*arguments, **keywords)
    assert len(found) == 1, found
    return found[0]


def one(text: str) -> Problem:
    """The one problem of a text."""
    return only(write(text))


def complete(problem: Problem) -> bool:
    """Whether a reader has all that it takes, in words that are not pydantic's."""
    said = dataclasses.astuple(problem)
    return all((problem.where, problem.expected, problem.received, problem.fix)) and not any(
        raw in text for raw in _RAW for text in said
    )
