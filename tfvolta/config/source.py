"""YAML text to entries with their lines: no tags, no objects, no duplicate keys, no surprises of size."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tfvolta.config.entry import Entry
from tfvolta.config.provenance import Origin
from tfvolta.config.scalars import read_scalar, write_scalar
from tfvolta.errors import Problem

_MOST_LEVELS = 20
# A config has some fifty keys; aliases of aliases could otherwise describe more nodes than memory holds.
_MOST_NODES = 10_000
# What ruamel.yaml lets through on damaged input besides its own errors.
_PARSER_FAULTS = (YAMLError, ValueError, TypeError, AttributeError, LookupError, AssertionError, NotImplementedError)
_FIXES = (
    ("'\\t'", "indent with spaces: YAML allows no tabs there"),
    ("mapping values are not allowed", "put a value that contains ': ' in quotes, or mend the indentation"),
    ("expected ',' or ']'", "close the list with ]"),
    ("expected ',' or '}'", "close the mapping with }"),
    ("could not find expected ':'", "write a colon and a space after the key"),
    ("quoted scalar", "close the quotes"),
    ("alias", "write the value itself instead of an alias"),
    ("special characters are not allowed", "save the file as plain UTF-8 text"),
)
Namer = Callable[[int], tuple[Origin, str]]


class _StopError(Exception):
    """What was read cannot be read on; the problem is noted already."""


def file_namer(name: str) -> Namer:
    """Names lines of a file: ``name:line`` both as origin and as place of problems."""

    def namer(line: int) -> tuple[Origin, str]:
        text = f"{name}:{line}"
        return Origin("file", text), text

    return namer


def read_yaml(text: str, namer: Namer, problems: list[Problem]) -> Entry:
    """Reads one YAML 1.2 document.

    Args:
        text: The document.
        namer: Gives origin and place of a line (counted from 1).
        problems: Receives what is wrong; reading goes on behind everything but broken syntax.

    Returns:
        The entry of the whole document, null for an empty one; parts that make no sense are left out, with a problem.
    """
    return _Reader(namer, problems).document(text)


class _Reader:
    """Composes entries from the events of ruamel.yaml's parser."""

    def __init__(self, namer: Namer, problems: list[Problem]):
        self._namer = namer
        self._problems = problems
        self._anchors: dict[str, Entry] = {}
        self._events: Iterator[Any] = iter(())
        self._path: list[str] = []

    def document(self, text: str) -> Entry:
        parser: Any = YAML(typ="safe", pure=True)
        document = self._entry(None, 1)
        try:
            self._events = iter(parser.parse(text))
            event = next(self._events)
            while _kind(event) in ("StreamStart", "DocumentStart"):
                event = next(self._events)
            if _kind(event) != "StreamEnd":
                document = self._node(event, 0)
                self._end()
        except _StopError:
            pass
        except _PARSER_FAULTS as error:
            self._problems.append(_syntax_problem(error, self._namer))
        return document

    def _end(self) -> None:
        for event in self._events:
            if _kind(event) == "DocumentStart":
                self._note(event, "one YAML document", "a second document after ---", "", "keep one document in a file")
                return

    def _node(self, event: Any, level: int) -> Entry:
        if level > _MOST_LEVELS:
            self._stop(event, f"at most {_MOST_LEVELS} levels of nesting", "more")
        kind = _kind(event)
        if kind == "Alias":
            if event.anchor not in self._anchors:
                self._stop(event, "an alias of an anchor written above it", f"*{event.anchor}")
            aliased = self._anchors[event.anchor]
            return self._entry(aliased.value, _line(event), aliased.size)
        if event.tag is not None and event.tag != "!":
            why = "tags make objects, and a config holds plain values"
            fix = "remove the tag; put quotes around a value that has to be a string"
            self._note(event, "a value without a tag", f"the tag {event.tag}", why, fix)
        if kind == "Scalar":
            plain = event.style in (None, "") and event.tag is None
            entry = self._entry(read_scalar(event.value) if plain else event.value, _line(event))
        else:
            entry = self._sequence(event, level) if kind == "SequenceStart" else self._mapping(event, level)
        if entry.size > _MOST_NODES:
            self._stop(event, f"at most {_MOST_NODES} values", "more, by aliases of aliases")
        if event.anchor is not None:
            self._anchors[event.anchor] = entry
        return entry

    def _sequence(self, event: Any, level: int) -> Entry:
        items = []
        for inner in self._events:
            if _kind(inner) == "SequenceEnd":
                break
            items.append(self._node(inner, level + 1))
        return self._entry(tuple(items), _line(event), 1 + sum(item.size for item in items))

    def _mapping(self, event: Any, level: int) -> Entry:
        items: dict[str, Entry] = {}
        size = 1
        for inner in self._events:
            if _kind(inner) == "MappingEnd":
                break
            named = self._node(inner, level + 1)
            self._path.append(inner.value if _kind(inner) == "Scalar" else "?")
            value = self._node(next(self._events), level + 1)
            size += value.size
            self._put(items, inner, named, value)
            self._path.pop()
        return self._entry(items, _line(event), size)

    def _put(self, items: dict[str, Entry], event: Any, named: Entry, value: Entry) -> None:
        if isinstance(named.value, (tuple, dict)):
            self._note(event, "a word as a key", "a list or a mapping as a key", "", "write a key such as xla")
            return
        key = event.value if _kind(event) == "Scalar" else write_scalar(named.value).strip('"')
        if key == "<<":
            fix = "write the keys out, or put them in a file and name it in extends"
            self._note(event, "keys written out, or extends", "the merge key <<", "YAML 1.2 has no merge keys", fix)
        elif key in items:
            twice = f"{key} twice: {items[key].place} and {self._namer(_line(event))[1]}"
            fix = f"delete one of the two lines, or join their contents under one {key}"
            self._note(event, f"the key {key} once", twice, "readers differ in which of the two they take", fix)
        else:
            # The line of the key, not of its value: that is where an editor's search ends.
            items[key] = self._entry(value.value, _line(event), value.size)

    def _entry(self, value: Any, line: int, size: int = 1) -> Entry:
        origin, place = self._namer(line)
        return Entry(value, origin, place, size)

    def _note(self, event: Any, expected: str, received: str, why: str, fix: str) -> None:
        place = self._entry(None, _line(event))
        where = place.where(".".join(self._path)) if self._path else place.place
        self._problems.append(Problem(where, expected, received, why, fix))

    def _stop(self, event: Any, expected: str, received: str) -> NoReturn:
        self._note(event, expected, received, "", "write the values out, nested no deeper than the schema's keys")
        raise _StopError


def _syntax_problem(error: Exception, namer: Namer) -> Problem:
    line, message, context = 1, str(error).splitlines()[0] if str(error) else type(error).__name__, ""
    if isinstance(error, MarkedYAMLError):
        mark: Any = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        message, context = error.problem or message, error.context or ""
    fix = next((fix for sign, fix in _FIXES if sign in f"{context} {message}"), "")
    return Problem(
        namer(line)[1],
        "YAML 1.2",
        message.rstrip("."),
        context,
        fix or f"mend the indentation, the brackets or the quotes in line {line} or the line before it",
    )


def _kind(event: Any) -> str:
    return type(event).__name__.replace("Event", "")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
