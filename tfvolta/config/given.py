"""What a config was loaded from, as it was at that moment: files change afterwards."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class GivenFile:
    """A file or an embedded template that was read.

    Attributes:
        name: As it was referred to.
        path: Where it lies, absolute, links resolved.
        text: All of it, comments included.
    """

    name: str
    path: str
    text: str


@dataclasses.dataclass(frozen=True)
class Given:
    """All that ``load_config`` was given, but sections as arguments.

    Attributes:
        reference: The file or template that was asked for; None where there was none.
        files: That file first, and those that it extends.
        overrides: Such as ``xla.jit=off``, in their order.
    """

    reference: Optional[str] = None
    files: tuple[GivenFile, ...] = ()
    overrides: tuple[str, ...] = ()
