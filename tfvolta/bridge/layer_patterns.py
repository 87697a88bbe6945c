"""Shell patterns for layers: which they match, and what was probably meant by one that matches none.

The same rule serves the conversion of a model, layers that are constructed, groups of gradients and reports.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from typing import Any, Iterable, Sequence

_BASES = frozenset({"object", "Layer", "Operation", "Model", "Module", "AutoTrackable", "Trackable", "Functional"})


@dataclasses.dataclass(frozen=True)
class Pattern:
    """One pattern.

    Attributes:
        pattern: As it was given.
        paths: Layers that it matches.
        near: Names and classes of the model that are like it; of interest where it matches none.
    """

    pattern: str
    paths: tuple[str, ...]
    near: tuple[str, ...] = ()

    def suggestion(self) -> str:
        """What to write instead of a pattern that matches nothing."""
        if self.near:
            return f"instead of {self.pattern} write {' or '.join(self.near)}"
        return f"take {self.pattern} out, or write {self.pattern}* or *{self.pattern}* for a part of a name"


def class_names(layer: Any) -> tuple[str, ...]:
    """The class of a layer and those that it is derived from, as far as they tell something."""
    return tuple(cls.__name__ for cls in type(layer).__mro__ if cls.__name__ not in _BASES)


def matches(path: str, layer: Any, patterns: Sequence[str]) -> bool:
    """Whether a layer's path, its name, its class or one that this is derived from fits one of the patterns."""
    names = (path, path.rsplit("/", 1)[-1], str(getattr(layer, "name", path)), *class_names(layer))
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def with_inner(paths: Iterable[str], all_paths: Iterable[str]) -> set[str]:
    """Paths, and those of the layers inside."""
    tops = set(paths)
    parts = ((path, path.split("/")) for path in all_paths)
    return {path for path, names in parts if tops & {"/".join(names[:n]) for n in range(1, len(names) + 1)}}


def patterns_of(patterns: Sequence[str], layers: Sequence[tuple[str, Any]]) -> list[Pattern]:
    """Each pattern with the layers that it matches.

    Args:
        patterns: Shell patterns.
        layers: Layers by path, such as ``Bridge.layers`` gives them.
    """
    classes = {path: class_names(layer) for path, layer in layers}
    found = []
    for pattern in patterns:
        paths = tuple(path for path, layer in layers if matches(path, layer, [pattern]))
        found.append(Pattern(pattern, paths, () if paths else _near(pattern, classes)))
    return found


def _near(pattern: str, classes: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Names and classes like a pattern, the nearest first; whatever the case of its letters, and parts of names."""
    words = {name: None for path, names in classes.items() for name in (*names, path.rsplit("/", 1)[-1], path)}
    by_case = {name.lower(): name for name in reversed(list(words))}
    bare = pattern.strip("*").lower()
    close = [by_case[word] for word in difflib.get_close_matches(bare, by_case, n=3, cutoff=0.6)]
    inside = [name for word, name in by_case.items() if bare and bare in word]
    return tuple(dict.fromkeys([*close, *inside]))[:3]
