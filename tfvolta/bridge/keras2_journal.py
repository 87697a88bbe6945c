"""What a retrofit changed in a Keras 2 model, written down so that it can be taken back exactly."""

from __future__ import annotations

import types
from typing import Any, Callable


class Journal:
    """What was changed, by layer, in the order of the changes."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, layer: Any, restore: Callable[[], None]) -> None:
        """Writes down a change of a layer that was made elsewhere, by what takes it back."""
        self._entries.append((id(layer), restore))

    def set_policy(self, layer: Any, policy: str) -> None:
        """Gives a layer another dtype policy."""
        before = layer.dtype_policy
        if before.name != policy:
            layer._set_dtype_policy(policy)
            self.note(layer, lambda: layer._set_dtype_policy(before))

    def set_attribute(self, layer: Any, name: str, value: Any) -> None:
        """Sets an attribute past Keras's tracking."""
        present, before = name in layer.__dict__, layer.__dict__.get(name)
        layer.__dict__[name] = value

        def restore() -> None:
            if present:
                layer.__dict__[name] = before
            else:
                layer.__dict__.pop(name, None)

        self.note(layer, restore)

    def set_call(self, layer: Any, call: Callable[..., Any]) -> None:
        """Sets a method in front of a layer's ``call``; bound, as Keras leaves ``self`` out of a method's signature."""
        self.set_attribute(layer, "call", types.MethodType(call, layer))

    def revert(self, layer: Any) -> None:
        """Takes back what was changed in one layer."""
        kept = []
        for owner, restore in reversed(self._entries):
            if owner == id(layer):
                restore()
            else:
                kept.append((owner, restore))
        self._entries = kept[::-1]

    def undo(self) -> None:
        """Takes everything back; a second call finds nothing to do."""
        while self._entries:
            self._entries.pop()[1]()
