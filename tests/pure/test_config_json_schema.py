"""The JSON schema: current, valid, complete."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from tfvolta.config.catalogue import sections, settings
from tfvolta.config.json_schema import json_schema

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs" / "config.schema.json"


def test_committed_file_is_current() -> None:
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert committed == json_schema(), "run: python -m tfvolta.config.json_schema > docs/config.schema.json"


def test_it_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_everything_is_described_and_strict() -> None:
    schema = json_schema()
    assert "extends" in schema["properties"]
    for section in (schema, *schema["$defs"].values()):
        assert section["additionalProperties"] is False
        assert section["description"] and "Attributes" not in section["description"]
        assert all(found["title"] for found in section["properties"].values())
    for setting in settings().values():
        assert setting.schema.get("description"), setting.key
    assert schema["$defs"]["Devices"]["properties"]["memory_limit_mb"]["x-unit"] == "MiB"


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "tfvolta/config/templates").glob("*.yaml"))],
    ids=lambda path: path.name,
)
def test_templates_are_valid(path: Path) -> None:
    document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json_schema()).validate(document)


@pytest.mark.parametrize("document", [{"xlaa": {}}, {"xla": {"jiit": "auto"}}, {"xla": True}, {"extends": 3}, []])
def test_faults_are_marked(document: object) -> None:
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document)


@pytest.mark.parametrize(
    "document", [{}, {"extends": ["a.yaml"]}, *({name: None} for name in sections() if "." not in name)]
)
def test_what_loads_is_not_marked(document: object) -> None:
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document)
