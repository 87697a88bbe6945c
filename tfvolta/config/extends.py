"""A config file and all that it extends, as layers: later ones win."""

from __future__ import annotations

from typing import Mapping, Optional

from tfvolta.config.entry import Entry
from tfvolta.config.files import Source, find_source, read_text
from tfvolta.config.given import GivenFile
from tfvolta.config.scalars import write_flow, yaml_type
from tfvolta.config.source import file_namer, read_yaml
from tfvolta.config.wording import received
from tfvolta.errors import Problem

EXTENDS = "extends"
# Far above any sane use; a diamond of diamonds would otherwise be read a million times.
_MOST_FILES = 100


def file_layers(
    reference: str, environ: Mapping[str, str], problems: list[Problem], read: Optional[list[GivenFile]] = None
) -> list[Entry]:
    """Reads a file, and first those that it extends.

    Args:
        reference: Path or template name.
        environ: For ``~`` and ``$NAME`` in paths.
        problems: Receives what is wrong with any of the files.
        read: Receives the files, as they were read, the one that was asked for first.

    Returns:
        Mappings without their ``extends``, the file itself last.
    """
    return _Chain(environ, problems, [] if read is None else read).layers(reference, None, reference)


class _Chain:
    """One walk up the ``extends`` of a file."""

    def __init__(self, environ: Mapping[str, str], problems: list[Problem], files: list[GivenFile]):
        self._environ = environ
        self._problems = problems
        self._files = files
        self._open: list[Source] = []
        self._read = 0

    def layers(self, reference: str, parent: Optional[Source], where: str) -> list[Entry]:
        source = find_source(reference, parent, self._environ, where)
        if isinstance(source, Problem):
            self._problems.append(source)
            return []
        if self._refused(source, where):
            return []
        text = read_text(source, where)
        if isinstance(text, Problem):
            self._problems.append(text)
            return []
        self._files.append(GivenFile(source.name, source.identity, text))
        root = read_yaml(text, file_namer(source.name), self._problems)
        if root.value is None:
            return []
        if not isinstance(root.value, dict):
            self._problems.append(_top(root))
            return []
        self._open.append(source)
        below = [layer for name in self._names(root) for layer in self.layers(name[0], source, name[1])]
        self._open.pop()
        root.value.pop(EXTENDS, None)
        return [*below, root]

    def _refused(self, source: Source, where: str) -> bool:
        self._read += 1
        identities = [known.identity for known in self._open]
        if source.identity in identities:
            circle = [known.name for known in self._open[identities.index(source.identity) :]] + [source.name]
            expected, fix = "files that do not extend each other in a circle", "remove one of these extends"
            self._problems.append(Problem(where, expected, " -> ".join(circle), "", fix))
            return True
        if self._read == _MOST_FILES + 1:
            self._problems.append(Problem(where, f"at most {_MOST_FILES} files", "more", "", "extend fewer files"))
        return self._read > _MOST_FILES

    def _names(self, root: Entry) -> list[tuple[str, str]]:
        """Reference and place of each file in ``extends``."""
        entry = root.value.get(EXTENDS)
        if entry is None or entry.value is None:
            return []
        items = entry.value if isinstance(entry.value, tuple) else (entry,)
        names = []
        for item in items:
            if isinstance(item.value, str) and item.value.strip():
                names.append((item.value, item.where(EXTENDS)))
            else:
                expected = "a file name, a template name, or a list of them"
                fix = "extends: tfvolta:default"
                self._problems.append(Problem(item.where(EXTENDS), expected, received(item.plain()), "", fix))
        return names


def _top(root: Entry) -> Problem:
    value = root.plain()
    return Problem(
        root.place,
        "sections with keys, such as xla: {jit: auto}",
        f"{yaml_type(value)}: {write_flow(value)[:60]}",
        "the top of a config is a mapping from section to settings",
        "remove the dashes before the sections" if isinstance(value, list) else "write sections: xla: {jit: auto}",
    )
