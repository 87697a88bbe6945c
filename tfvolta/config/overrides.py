"""Overrides (``section.key=value``) and explicit arguments, as layers over those of the files."""

from __future__ import annotations

import dataclasses
import numbers
import os
import re
from typing import Any, Mapping, Optional, Sequence

from pydantic import BaseModel

from tfvolta.config.catalogue import section_class, settings
from tfvolta.config.entry import Entry
from tfvolta.config.provenance import Origin
from tfvolta.config.scalars import write_flow, yaml_type
from tfvolta.config.schema import Config
from tfvolta.config.source import read_yaml
from tfvolta.errors import Problem

_EXAMPLE = "xla.jit=off"
_KEY = re.compile(r"[^\s.=]+(\.[^\s.=]+)*")
_MOST_LEVELS = 20
# Python refuses to print integers of some thousand digits, and no setting needs one.
_LARGEST = 10**100


def override_layers(overrides: Sequence[str], problems: list[Problem]) -> list[Entry]:
    """One layer per override.

    Args:
        overrides: Such as ``xla.jit=off``; the value is YAML in one line; ``xla=null`` removes a section.
        problems: Receives what is wrong with their form.
    """
    if isinstance(overrides, (str, bytes)) or not isinstance(overrides, Sequence):
        received = f"{overrides!r}, {yaml_type(overrides)}"
        problems.append(Problem("overrides", "a list of strings", received, "", f'overrides=["{_EXAMPLE}"]'))
        return []
    layers = [_override_layer(index, text, problems) for index, text in enumerate(overrides, 1)]
    return [layer for layer in layers if layer is not None]


def _override_layer(index: int, text: Any, problems: list[Problem]) -> Optional[Entry]:
    place = f"override {index}: {text!r}"
    if not isinstance(text, str):
        problems.append(Problem(place, "a string", yaml_type(text), "", f'"{_EXAMPLE}"'))
        return None
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key):
        received = "no =" if not equals else (f"the key {key!r}" if key else "no key before =")
        problems.append(Problem(place, f"section.key=value, such as {_EXAMPLE}", received, "", _with_equals(text)))
        return None
    if not value.strip():
        setting = settings().get(key)
        value = "null" if setting is None or setting.optional else write_flow(setting.example)
        problems.append(Problem(place, "a value after =", "nothing", "", f"{key}={value}, for example"))
        return None
    origin = Origin("override", f"override {index} ({text})")
    before = len(problems)
    entry = read_yaml(value, lambda line: (origin, place), problems)
    if len(problems) > before:
        return None
    for part in reversed(key.split(".")):
        entry = Entry({part: entry}, origin, place)
    return entry


def _with_equals(text: str) -> str:
    """An override that was written with a colon or a space, or without a value, as it should be."""
    key, _, value = text.partition(":") if ":" in text else text.strip().partition(" ")
    if "=" in text or not _KEY.fullmatch(key.strip()):
        return _EXAMPLE
    return f"{key.strip()}={value.strip() or 'VALUE'}"


def argument_layer(sections: Mapping[str, Any], problems: list[Problem]) -> Optional[Entry]:
    """The layer of explicit arguments: mappings, ``Section`` instances (what was given to them), or None to remove one.

    Args:
        sections: Keyword arguments by section name.
        problems: Receives instances given to another section's argument.
    """
    layer = {}
    for name, value in sections.items():
        expected = section_class(Config, name)
        if isinstance(value, BaseModel):
            if expected is not None and not isinstance(value, expected):
                wrong = f"a {type(value).__name__}"
                fix = f"{name}={expected.__name__}(...)"
                problems.append(Problem(f"argument {name}", f"a {expected.__name__} or a dict", wrong, "", fix))
                continue
            value = value.model_dump(exclude_unset=True)
        layer[name] = _entry(value, Origin("argument", f"argument {name}"), 0)
    return Entry(layer, Origin("argument", "arguments"), "argument") if layer else None


def _entry(value: Any, origin: Origin, level: int) -> Entry:
    """Python values as a file would have given them: tuples are lists, paths are strings."""
    entry = Entry(value, origin, "argument")
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if level <= _MOST_LEVELS and isinstance(value, Mapping):
        return dataclasses.replace(
            entry, value={str(key): _entry(item, origin, level + 1) for key, item in value.items()}
        )
    if level <= _MOST_LEVELS and isinstance(value, (list, tuple)):
        return dataclasses.replace(entry, value=tuple(_entry(item, origin, level + 1) for item in value))
    if isinstance(value, (Mapping, list, tuple)):
        return dataclasses.replace(entry, value=repr(value))
    if isinstance(value, os.PathLike):
        return dataclasses.replace(entry, value=os.fspath(value))
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return dataclasses.replace(entry, value=f"an integer of {value.bit_length()} bits")
    if isinstance(value, numbers.Integral) and not isinstance(value, (bool, int)):
        return dataclasses.replace(entry, value=int(value))
    return entry
