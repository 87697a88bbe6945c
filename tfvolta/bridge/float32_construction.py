"""Layers that are constructed under a mixed policy and shall compute in float32 from the start.

A layer takes its policy in the constructor of Keras's base class, before a subclass makes layers of its own, which
many of them give their policy on. So that constructor is where an island is made; a dtype that the script asks for is
left alone. A path is not known yet, and what lies inside an island that does not hand its policy on is made an island
by the retrofit.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from tfvolta.bridge.layer_patterns import matches

_PATTERNS = "_tfvolta_float32_patterns"


def in_force(layer_class: Any) -> tuple[str, ...]:
    """The patterns that layers are made islands by at present."""
    return tuple(getattr(layer_class.__init__, _PATTERNS, ()))


def keep(layer_class: Any, patterns: Sequence[str], to_float32: Callable[[Any], None]) -> Callable[[], None]:
    """Makes islands of the layers that are constructed from now on and match a pattern; the result ends that.

    Args:
        layer_class: Keras's base class of layers.
        patterns: Shell patterns of classes and names.
        to_float32: Gives a layer the float32 policy.
    """
    original = layer_class.__init__

    @functools.wraps(original)
    def construct(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        if keywords.get("dtype") is None and matches(self.name, self, patterns):
            to_float32(self)

    setattr(construct, _PATTERNS, tuple(patterns))
    layer_class.__init__ = construct

    def undo() -> None:
        if layer_class.__init__ is construct:
            layer_class.__init__ = original

    return undo
