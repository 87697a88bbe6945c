"""What a key accepts and what it was given, in words."""

from __future__ import annotations

from typing import Any

from tfvolta.config.catalogue import Setting, alternatives
from tfvolta.config.scalars import write_flow, yaml_type

_LONGEST = 80


def expected(setting: Setting) -> str:
    """What a setting accepts, such as ``a whole number of MiB (above 0), or null``."""
    return _joined(setting.schema, setting.unit)


def expected_item(setting: Setting) -> str:
    """What an item of a setting's list has to be."""
    array = next((kind for kind in setting.alternatives if kind.get("type") == "array"), {})
    return _joined(array.get("items", {}), "")


def received(value: Any) -> str:
    """A value and its type, such as ``12GB, a string``."""
    if value is None:
        return "null"
    text = write_flow(value)
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return f"{text}, {yaml_type(value)}"


def _joined(schema: dict[str, Any], unit: str) -> str:
    words = [_words(kind, unit) for kind in alternatives(schema)]
    return ", or ".join(words)


def _words(kind: dict[str, Any], unit: str) -> str:
    if "const" in kind:
        return write_flow(kind["const"])
    if "enum" in kind:
        return f"one of {', '.join(write_flow(option) for option in kind['enum'])}"
    if kind.get("type") == "array":
        return f"a list in which each item is {_joined(kind.get('items', {}), '')}"
    of_unit = f" of {unit}" if unit else ""
    return {
        "null": "null",
        "boolean": "true or false",
        "integer": f"a whole number{of_unit}{_range(kind)}",
        "number": f"a finite number{of_unit}{_range(kind)}",
        "string": f"a string{_form(kind)}",
        "object": "a mapping",
    }.get(str(kind.get("type")), "a value")


def _range(kind: dict[str, Any]) -> str:
    low, above = kind.get("minimum"), kind.get("exclusiveMinimum")
    high, below = kind.get("maximum"), kind.get("exclusiveMaximum")
    lower = f"{low:g} or more" if low is not None else f"above {above:g}" if above is not None else ""
    upper = f"at most {high:.0f}" if high is not None else f"below {below:.0f}" if below is not None else ""
    text = " and ".join(part for part in (lower, upper) if part)
    return f" ({text})" if text else ""


def _form(kind: dict[str, Any]) -> str:
    if kind.get("pattern") == "^--":
        return " that starts with --"
    if "pattern" in kind:
        return f" that matches {kind['pattern']}"
    return " that is not empty" if kind.get("minLength") else ""
