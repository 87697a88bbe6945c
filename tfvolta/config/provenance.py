"""Where a value of a config came from, and what it was written over."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

OriginKind = Literal["default", "file", "override", "argument"]


@dataclasses.dataclass(frozen=True)
class Origin:
    """The place that gave a value.

    Attributes:
        kind: What sort of place it is; later sorts win over earlier ones.
        text: The place itself: ``configs/a.yaml:7``, ``override 1 (xla.jit=off)``, ``argument xla`` or ``default``.
        overridden: The places whose values lost, the last one to lose first; each without its own ``overridden``.
    """

    kind: OriginKind
    text: str
    overridden: tuple[Origin, ...] = ()

    def over(self, loser: Origin) -> Origin:
        """This origin, with the memory that it won over another."""
        return dataclasses.replace(
            self, overridden=(*self.overridden, dataclasses.replace(loser, overridden=()), *loser.overridden)
        )

    def __str__(self) -> str:
        if not self.overridden:
            return self.text
        return f"{self.text}, over {', '.join(origin.text for origin in self.overridden)}"


DEFAULT = Origin("default", "default")


def origin_of(config: Any, key: str) -> Origin:
    """Where the value at a dotted key came from.

    Args:
        config: A ``Config``.
        key: Such as ``xla.jit``. A key of a section that was removed (``xla=null``) has the origin of the removal.

    Returns:
        The recorded origin, or the default's where nothing gave the key.

    Raises:
        AttributeError: The schema has no such key.
    """
    config.get(key)
    while key:
        if key in config.provenance:
            origin: Origin = config.provenance[key]
            return origin
        key = key.rpartition(".")[0]
    return DEFAULT
