"""The config's schema as JSON schema, for completion and checks in editors and in other languages."""

from __future__ import annotations

import json
from typing import Any

from tfvolta.config.catalogue import unit_of
from tfvolta.config.schema import Config

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REGENERATE = "python -m tfvolta.config.json_schema > docs/config.schema.json"
_EXTENDS = {
    "title": "Extends",
    "description": "Files (relative to this one) or templates (tfvolta:NAME) to build on; keys here win over theirs.",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"type": "null"},
    ],
}


def json_schema() -> dict[str, Any]:
    """The schema of a config file (draft 2020-12); keys with a unit carry it as ``x-unit``."""
    generated = Config.model_json_schema()
    definitions = {name: _section(schema) for name, schema in sorted(generated["$defs"].items())}
    top = _section({key: value for key, value in generated.items() if key != "$defs"})
    return {
        "$schema": _DIALECT,
        "$comment": f"Generated: {_REGENERATE}",
        **top,
        "title": "tfvolta config",
        "description": "Settings of a training run. An absent section or key means: leave that alone.",
        "properties": {"extends": _EXTENDS, **top["properties"]},
        "$defs": definitions,
    }


def _section(schema: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _property(name, value) for name, value in schema["properties"].items()}
    return {**schema, "properties": properties}


def _property(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    found = {"title": name.replace("_", " ").capitalize(), **schema}
    if "$ref" in found:
        # A section that is null in a file is absent, whether or not it has defaults of its own.
        found["anyOf"] = [{"$ref": found.pop("$ref")}, {"type": "null"}]
    if unit_of(name):
        found["x-unit"] = unit_of(name)
    return found


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
