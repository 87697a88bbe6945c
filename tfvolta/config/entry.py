"""A value as it was given, with its place: files, overrides and arguments before they are checked."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Optional, Sequence

from tfvolta.config.provenance import Origin


@dataclasses.dataclass(frozen=True)
class Entry:
    """One node of what was given.

    Attributes:
        value: A scalar, a tuple of entries (a list) or a dict of entries (a mapping).
        origin: Where it came from, for provenance.
        place: The same place as problems name it, such as ``configs/a.yaml:7`` or ``override 2: 'xla.jiit=auto'``.
        size: Number of nodes under it, itself included, aliases counted each time.
    """

    value: Any
    origin: Origin
    place: str
    size: int = 1

    def where(self, key: str) -> str:
        """The place and the dotted key, as a problem names them; an override names its key itself."""
        return self.place if self.origin.kind == "override" else f"{self.place}: {key}"

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [entry.plain() for entry in self.value]
        return self.value


def merge(layers: Sequence[Entry]) -> dict[str, Entry]:
    """Lays mappings over each other: keys of later ones win, mappings are merged, lists are replaced."""
    merged: dict[str, Entry] = {}
    for layer in layers:
        for key, entry in layer.value.items():
            merged[key] = _laid_over(merged.get(key), entry)
    return merged


def _laid_over(under: Optional[Entry], over: Entry) -> Entry:
    if under is None:
        return over
    if isinstance(under.value, dict) and isinstance(over.value, dict):
        return dataclasses.replace(over, value=merge([under, over]))
    return dataclasses.replace(over, origin=over.origin.over(under.origin))


def leaves(tree: dict[str, Entry], prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Dotted key and entry of every value in a tree, in order; a section that was emptied counts as one."""
    for key, entry in tree.items():
        if isinstance(entry.value, dict) and entry.value:
            yield from leaves(entry.value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", entry
