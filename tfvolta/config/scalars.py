"""Scalars as YAML 1.2 reads and writes them.

``yes``, ``no``, ``on`` and ``off`` are strings and ``017`` is seventeen, whatever a ``%YAML 1.1`` line asks for:
a file means the same in every reader.

Source: YAML 1.2.2, chapter 10.3, core schema.
"""

from __future__ import annotations

import re
from typing import Any

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+=*-]*(:[A-Za-z0-9_./+=*-]+)*|--[A-Za-z0-9_][A-Za-z0-9_./+=-]*")
# Longer numbers mean nothing in a config, and Python refuses to print integers of some thousand digits.
_LONGEST_NUMBER = 100
_TYPES = {
    "NoneType": "null",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a floating-point number",
    "str": "a string",
    "list": "a list",
    "dict": "a mapping",
}


def read_scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar: None, bool, int, float or str."""
    if len(text) > _LONGEST_NUMBER:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _INFINITY.fullmatch(text) or _NAN.fullmatch(text):
        return float(text.replace(".", ""))
    return float(text) if _FLOAT.fullmatch(text) else text


def write_scalar(value: Any) -> str:
    """A scalar as YAML that ``read_scalar`` (or a YAML reader, where it is quoted) turns back into the same value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and isinstance(read_scalar(value), str) else _quoted(value)
    return repr(value)


def write_flow(value: Any) -> str:
    """Any value in one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write_scalar(str(key))}: {write_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(write_flow(item) for item in value) + "]"
    return write_scalar(value)


def yaml_type(value: Any) -> str:
    """The type in YAML's words, with its article; a Python type that YAML lacks by its own name."""
    name = type(value).__name__
    return _TYPES.get(name, f"a Python {name}")


def _quoted(text: str) -> str:
    pieces = []
    for character in text:
        if character in '"\\':
            pieces.append("\\" + character)
        elif character.isprintable():
            pieces.append(character)
        else:
            pieces.append(f"\\U{ord(character):08x}")
    return '"' + "".join(pieces) + '"'
