"""Two configs side by side: from runs, files or templates, each value with where it came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Iterator, Mapping

from tfvolta.config.files import TEMPLATE_PREFIX
from tfvolta.config.loading import load_config
from tfvolta.history.entries import find_entry

_SUFFIXES = (".yaml", ".yml")
_ABSENT = object()


@dataclasses.dataclass(frozen=True)
class Side:
    """One of two configs.

    Attributes:
        name: As it was asked for.
        kind: ``run``, ``file`` or ``template``.
        values: By dotted key.
        origins: Where given values came from, by dotted key.
        overrides: Words of ``--set``.
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    origins: Mapping[str, str]
    overrides: tuple[str, ...] = ()

    def origin(self, key: str) -> str:
        """Where a value came from."""
        while key:
            if key in self.origins:
                return self.origins[key]
            key = key.rpartition(".")[0]
        return "default"


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value that is not the same.

    Attributes:
        key: Dotted.
        a: In the first; None also where its section is absent.
        b: In the second.
        origin_a: Where the first came from.
        origin_b: Where the second came from.
    """

    key: str
    a: Any
    b: Any
    origin_a: str
    origin_b: str


def side_of(name: str, directory: str) -> Side:
    """A config by name.

    Args:
        name: A run's id, folder or evidence file; a YAML file; or a template such as ``tfvolta:default``.
        directory: Folder of runs in which an id is looked up.

    Raises:
        ConfigError: The file or template cannot be used.
        EvidenceError: There is no such run.
    """
    is_template = name.startswith(TEMPLATE_PREFIX)
    if is_template or (name.endswith(_SUFFIXES) and not Path(name).is_dir()):
        config = load_config(name)
        origins = {key: str(origin) for key, origin in config.provenance.items()}
        return Side(name, "template" if is_template else "file", _flat(config.model_dump(mode="json")), origins)
    entry = find_entry(name, directory)
    asked = entry.evidence.config
    overrides = entry.applied.overrides if entry.applied else ()
    return Side(name, "run", _flat(asked.values), {k: str(v) for k, v in asked.provenance.items()}, overrides)


def differences(a: Side, b: Side) -> tuple[Difference, ...]:
    """Values that differ, in the order of the schema; a key of an absent section counts as null."""
    found = []
    for key in dict.fromkeys([*a.values, *b.values]):
        first, second = a.values.get(key, _ABSENT), b.values.get(key, _ABSENT)
        x, y = (None if value is _ABSENT else value for value in (first, second))
        if type(x) is not type(y) or x != y:
            found.append(Difference(key, x, y, _said(a, key, first), _said(b, key, second)))
    return tuple(found)


def _said(side: Side, key: str, value: Any) -> str:
    return "absent" if value is _ABSENT else side.origin(key)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return dict(_leaves(values, prefix))


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None or prefix:  # an absent section says nothing
            yield f"{prefix}{name}", value
