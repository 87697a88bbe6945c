"""What differs between two runs."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any, Iterator, Mapping, Optional

from tfvolta.evidence.schema import Evidence


class _Absent:
    """One of the runs has no such value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that is not the same in both runs.

    Attributes:
        key: Dotted name inside its section.
        a: Value in the first run, or ``ABSENT``.
        b: Value in the second run, or ``ABSENT``.
        origin_a: Where the first value came from; empty when that is not known.
        origin_b: Where the second came from.
        ratio: Second over first, where both are numbers and the first is not 0.
    """

    key: str
    a: Any
    b: Any
    origin_a: str = ""
    origin_b: str = ""
    ratio: Optional[float] = None

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values; a value that is absent has no entry."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if value is not ABSENT and value != ""}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs, and what differs in each section of their evidence."""

    a: Evidence
    b: Evidence
    sections: Mapping[str, tuple[Difference, ...]]

    @property
    def differs(self) -> bool:
        """Whether anything is not the same."""
        return any(self.sections.values())

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        sections = {name: [difference.to_json() for difference in found] for name, found in self.sections.items()}
        return {"a": self.a.run_id, "b": self.b.run_id, "differs": self.differs, "differences": sections}


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value in nested JSON, with its dotted key; lists of single values count as one."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for index, item in enumerate(value):
            yield from flatten(item, f"{prefix}[{index}]")
    else:
        yield prefix, value


def is_number(value: Any) -> bool:
    """Whether a value is a number and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ratio(a: Any, b: Any) -> Optional[float]:
    return b / a if is_number(a) and is_number(b) and a != 0 else None


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and a == b) or (is_number(a) and is_number(b) and a == b)


def _differences(a: Any, b: Any) -> list[Difference]:
    first, second = dict(flatten(a)), dict(flatten(b))
    keys = list(dict.fromkeys([*first, *second]))
    pairs = [(key, first.get(key, ABSENT), second.get(key, ABSENT)) for key in keys if key]
    return [Difference(key, x, y, ratio=_ratio(x, y)) for key, x, y in pairs if not _same(x, y)]


def _origin(evidence: Evidence, key: str) -> str:
    """Where a value came from: its own origin, or that of the section it is in."""
    while key:
        if key in evidence.config.provenance:
            return str(evidence.config.provenance[key])
        key = key.rpartition(".")[0]
    return "default"


def _config(a: Evidence, b: Evidence) -> tuple[Difference, ...]:
    found = []
    for difference in _differences(a.config.values, b.config.values):
        origins = {
            "origin_a": _origin(a, difference.key) if difference.a is not ABSENT else "",
            "origin_b": _origin(b, difference.key) if difference.b is not ABSENT else "",
        }
        found.append(dataclasses.replace(difference, ratio=None, **origins))
    return tuple(found)


def _facts(evidence: Evidence) -> dict[str, Any]:
    if evidence.facts is None:
        return {}
    return evidence.facts.model_dump(mode="json", exclude={"packages", "source", "schema_version"})


def _figures(evidence: Evidence) -> dict[str, Any]:
    """Measurements without single step times, of which no two runs have the same."""
    return {
        name: {key: item for key, item in values.items() if key != "step_sample"}
        if isinstance(values, dict)
        else values
        for name, values in evidence.measurements.items()
    }


def _outcomes(evidence: Evidence) -> dict[str, Any]:
    return {
        name: {"status": outcome.status.value, "phase": outcome.phase, "observed": outcome.observed}
        for name, outcome in evidence.outcomes.items()
    }


def _run(evidence: Evidence) -> dict[str, Any]:
    fields = {"status": evidence.status, "stack": evidence.stack, "script": evidence.script}
    error = f"{evidence.error.type}: {evidence.error.message}" if evidence.error else None
    return {**fields, "command": shlex.join(evidence.command), "error": error}


def compare(a: Evidence, b: Evidence) -> Comparison:
    """What differs between two runs; run ids, times and process numbers are not looked at.

    Config values come with their origins, measurements with their ratio.
    """
    sections = {
        "run": tuple(_differences(_run(a), _run(b))),
        "config": _config(a, b),
        "facts": tuple(_differences(_facts(a), _facts(b))),
        "versions": tuple(_differences(a.versions, b.versions)),
        "outcomes": tuple(_differences(_outcomes(a), _outcomes(b))),
        "measurements": tuple(_differences(_figures(a), _figures(b))),
        "fits": tuple(_differences({"fit": list(a.fits)}, {"fit": list(b.fits)})),
    }
    return Comparison(a, b, sections)
