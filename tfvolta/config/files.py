"""Config files and embedded templates: from a reference to text, or to the problem with the reference."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from pathlib import Path
from typing import Mapping, Optional, Union

from tfvolta.errors import Problem

TEMPLATE_PREFIX = "tfvolta:"
DEFAULT_TEMPLATE = "tfvolta:default"
_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIXES = (".yaml", ".yml")
_MOST_BYTES = 1 << 20
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


@dataclasses.dataclass(frozen=True)
class Source:
    """A config file or an embedded template.

    Attributes:
        name: As problems and provenance call it.
        path: Where it lies.
        folder: Where relative references to it start.
    """

    name: str
    path: str
    folder: str = ""

    @property
    def identity(self) -> str:
        """The same for two references to one file."""
        try:
            return os.path.realpath(self.path)
        except (OSError, ValueError):
            return self.path


def template_names() -> list[str]:
    """References to the templates that come with the package, such as ``tfvolta:default``."""
    return sorted(f"{TEMPLATE_PREFIX}{path.stem}" for path in _TEMPLATES.glob("*.yaml"))


def find_source(
    reference: str, parent: Optional[Source], environ: Mapping[str, str], where: str
) -> Union[Source, Problem]:
    """Finds what a path or an ``extends`` entry refers to; existence is tried only when it is read.

    Args:
        reference: A path, with ``~`` and ``$NAME`` allowed, or ``tfvolta:NAME``.
        parent: The source that says it; relative paths start in its folder.
        environ: Values of ``$NAME`` and of HOME.
        where: Place of the reference, for problems.
    """
    if reference.startswith(TEMPLATE_PREFIX):
        if reference in template_names():
            return Source(reference, str(_TEMPLATES / f"{reference[len(TEMPLATE_PREFIX) :]}.yaml"))
        return _missing(reference, template_names(), where, "no template of this name comes with the package")
    expanded = _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], match[0]), reference)
    unset = _VARIABLE.search(expanded)
    if unset is not None:
        name = unset[1] or unset[2]
        fix = f"export {name}=/some/folder, or write the path itself"
        return Problem(where, "a path", reference, f"the environment has no {name}", fix)
    if expanded.startswith("~/"):
        expanded = os.path.join(environ.get("HOME", "~"), expanded[2:])
    if parent is None:
        return Source(expanded, expanded)
    folder = os.path.dirname(parent.path if parent.name.startswith(TEMPLATE_PREFIX) else parent.name)
    name = os.path.normpath(os.path.join(folder, expanded))
    return Source(name, name, folder)


def read_text(source: Source, where: str) -> Union[str, Problem]:
    """The text of a source, or why it cannot be had."""
    try:
        with open(source.path, "rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return _missing(source.name, _neighbours(source), where, "no such file")
    except IsADirectoryError:
        inside = _names(source.path)
        fix = f"name a file in it: {', '.join(inside[:6])}" if inside else "name a YAML file"
        return Problem(where, "a config file", f"the folder {source.name}", "", fix)
    except PermissionError:
        fix = f"chmod u+r {source.name}"
        return Problem(where, "a readable file", source.name, "its permissions forbid reading", fix)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        return Problem(where, "a readable file", repr(source.name)[:200], reason, "give the path of a config file")
    if len(data) > _MOST_BYTES:
        received = f"{source.name}, which is larger"
        return Problem(where, "a config file of at most 1 MiB", received, "", "give the path of a config file")
    return _decoded(data, source, where)


def _decoded(data: bytes, source: Source, where: str) -> Union[str, Problem]:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        place = where if where.startswith(f"{source.name}:") else f"{source.name}:{line}"
        received = f"byte 0x{data[error.start]:02x} in line {line}, which is not UTF-8"
        fix = f"save the file as UTF-8, for example: iconv -f ISO-8859-1 -t UTF-8 {source.name}"
        return Problem(place, "UTF-8 text", received, "YAML files are Unicode text", fix)


def _missing(name: str, candidates: list[str], where: str, why: str) -> Problem:
    """A reference to nothing, with what lies near it."""
    stem = os.path.splitext(os.path.basename(name))[0].replace(TEMPLATE_PREFIX, "").lower()
    known = list(dict.fromkeys([*candidates, *template_names()]))
    stems = {candidate: _stem(candidate) for candidate in known}
    close = difflib.get_close_matches(stem, list(dict.fromkeys(stems.values())), n=3, cutoff=0.6)
    meant = [candidate for match in close for candidate, found in stems.items() if found == match]
    if meant:
        return Problem(where, "an existing config file", name, why, f"did you mean {' or '.join(meant)}?")
    return Problem(where, "an existing config file", name, why, f"give one of these: {', '.join(known[:8])}")


def _stem(candidate: str) -> str:
    return os.path.splitext(os.path.basename(candidate))[0].replace(TEMPLATE_PREFIX, "").lower()


def _neighbours(source: Source) -> list[str]:
    """Config files beside a missing one, as they would be referred to."""
    folder = os.path.dirname(source.path)
    paths = [os.path.join(folder, name) for name in _names(folder or ".")]
    return [os.path.relpath(path, source.folder) for path in paths] if source.folder else paths


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))
    except (OSError, ValueError):
        return []
