"""For every key of the schema and every kind of fault: expected, received, why, fix."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.pure.config_case import complete, one, problems_of
from tfvolta.config.catalogue import Setting, sections, settings
from tfvolta.config.json_schema import json_schema
from tfvolta.config.scalars import read_scalar, write_flow

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


WRONG = (
    "12GB",
    "on",
    "yes",
    "true_",
    "",
    " ",
    "1_000",
    "'1'",
    '"true"',
    "12 GiB",
    "nonsense",
    "-1",
    "0",
    "-0.5",
    "1.5",
    "2.0",
    "4294967296",
    ".inf",
    "-.inf",
    ".nan",
    "1e400",
    "true",
    "false",
    "null",
    "[]",
    "[1.5, x]",
    "[null]",
    "[[1]]",
    "[-1]",
    "[0, true]",
    "[a, 1]",
    "{}",
    "{a: 1}",
    "2020-01-01",
    "9" * 5000,
    "\u00e4\u00f6",
    "0x10",
)


def nested(key: str, value: str) -> str:
    parts = key.split(".")
    return "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(parts[:-1])) + (
        f"{'  ' * (len(parts) - 1)}{parts[-1]}: {value}\n"
    )


@functools.cache
def read_back(text: str) -> Any:
    """The value as another YAML reader has it."""
    if text[:2] in ("20", "1_", "99"):
        return text
    return YAML(typ="safe", pure=True).load(f"v: {text}")["v"]


def everywhere(value: str) -> tuple[str, dict[str, int]]:
    """A config in which every key has the same value, and the line of each key."""
    lines: list[str] = []
    places: dict[str, int] = {}
    written: set[str] = set()
    # Whole sections one after the other, so that no section is opened twice.
    for key in sorted(settings()):
        parts = key.split(".")
        for depth in range(1, len(parts)):
            if ".".join(parts[:depth]) not in written:
                written.add(".".join(parts[:depth]))
                lines.append(f"{'  ' * (depth - 1)}{parts[depth - 1]}:")
        lines.append(f"{'  ' * (len(parts) - 1)}{parts[-1]}: {value}")
        places[key] = len(lines)
    return "\n".join(lines) + "\n", places


@pytest.mark.parametrize("value", WRONG, ids=lambda value: value[:20])
def test_every_key_explains_every_wrong_value(value: str) -> None:
    """All keys of the schema at once: those that refuse the value say so completely, at their own line."""
    text, places = everywhere(value)
    found = problems_of(text)
    refusing = {key for key, setting in settings().items() if not setting.accepts(read_back(value))}
    assert {re.sub(r"\[\d+\]", "", problem.where.rpartition(": ")[2]) for problem in found} == refusing
    for problem in found:
        assert complete(problem), problem
        key = re.sub(r"\[\d+\]", "", problem.where.rpartition(": ")[2])
        assert problem.where.startswith(f"a.yaml:{places[key]}: "), problem


def test_every_key_refuses_something() -> None:
    for setting in settings().values():
        assert sum(not setting.accepts(read_back(value)) for value in WRONG) > 10, setting.key


@pytest.mark.parametrize("value", WRONG, ids=lambda value: value[:20])
def test_fixes_are_valid(value: str) -> None:
    """Whoever follows the fixes of wrong values has a config that loads."""
    found = problems_of("", *(f"{key}={value}" for key in settings()))
    fixes = [problem.fix.partition("Write: ")[2] or problem.fix.partition(", for example")[0] for problem in found]
    assert problems_of("", *fixes) == (), fixes


@pytest.mark.parametrize("setting", settings().values(), ids=lambda setting: setting.key)
def test_a_slip_in_every_key_is_understood(setting: Setting) -> None:
    name = setting.name
    wrong = name[:-2] + name[-1] if len(name) > 4 else name + "s"
    problem = one(nested(setting.key[: -len(name)] + wrong, write_flow(setting.example)))
    assert complete(problem)
    assert f"did you mean {setting.key}" in problem.fix, problem


@pytest.mark.parametrize("key", [key for key, setting in settings().items() if setting.name not in sections()])
def test_every_key_is_found_from_the_top_level(key: str) -> None:
    setting = settings()[key]
    problem = one(f"{setting.name}: {write_flow(setting.example)}\n")
    assert setting.key in problem.fix.partition("?")[0], problem


@pytest.mark.parametrize("section", sections())
@pytest.mark.parametrize("value", ["true", "false", "auto", "3", "1.5", "[a]", "[{a: 1}]", '""', ".nan"])
def test_a_value_in_place_of_a_section(section: str, value: str) -> None:
    problem = one(nested(section, value))
    assert complete(problem)
    assert problem.where.endswith(f": {section}") and "is a section" in problem.why
    example = problem.fix.partition("; or leave")[0]
    parent = section.rpartition(".")[0]
    text = example if not parent else f"{parent}: {{{example}}}"
    assert problems_of(text) == ()


def test_json_schema_and_loading_agree() -> None:
    """An editor that uses the JSON schema marks what load_config refuses, and nothing else."""
    validator = jsonschema.Draft202012Validator(json_schema())
    for setting in settings().values():
        for text in WRONG:
            value = read_scalar(text) if text[:1] not in "[{'\"" else read_back(text)
            if (value == 2.0 and isinstance(value, float)) or value in (float("inf"), float("-inf")) or value != value:
                continue  # JSON has neither floats apart from integers nor infinities
            document: Any = value
            for part in reversed(setting.key.split(".")):
                document = {part: document}
            assert validator.is_valid(document) == setting.accepts(value), (setting.key, value)
