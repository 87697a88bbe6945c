"""Layers whose own code multiplies in float32 whatever their policy says, found by the names in the traced step."""

from __future__ import annotations

import re
from typing import Any, Iterable, Sequence

_KERAS = ("keras", "tf_keras")
_SUFFIX = re.compile(r"_\d+\Z")


def multiplying_in_float32(
    names: Iterable[str], model: Any, layers: Sequence[tuple[str, Any]], kept: set[str]
) -> list[str]:
    """Paths of the layers with code of their own in whose scopes float32 products were traced.

    Keras's own layers follow their policy; what a user wrote may cast, and then the policy gains nothing there.

    Args:
        names: Names of the float32 matrix products and convolutions of the traced step.
        model: The model.
        layers: Its layers by path.
        kept: Paths of layers that are in float32 on purpose or were refused.
    """
    found: dict[str, None] = {}
    for path, layer in _owners(names, model, layers):
        inside = any(path == outer or path.startswith(f"{outer}/") for outer in kept)
        if not inside and _has_own_code(layer):
            found[path] = None
    return list(found)


def multiplied_in(names: Iterable[str], model: Any, layers: Sequence[tuple[str, Any]]) -> set[str]:
    """Paths of the layers in whose scopes products were traced; the model's name stands for code outside of them all.

    Args:
        names: Names of matrix products and convolutions of the traced step.
        model: The model.
        layers: Its layers by path.
    """
    return {path for path, _ in _owners(names, model, layers)}


def _owners(names: Iterable[str], model: Any, layers: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """For each name the innermost layer around it."""
    scopes = [_scope(name) for name in names]
    exact = any(model.name in scope for scope in scopes)
    known = [(path.split("/"), path, layer) for path, layer in layers]
    return [
        max(
            ((path, layer) for parts, path, layer in known if _lies_in(parts, scope, exact)),
            key=lambda pair: pair[0].count("/"),
            default=(model.name, model),
        )
        for scope in scopes
    ]


def _scope(name: str) -> list[str]:
    """Scopes around an operation; those of its gradient hold the forward operation's name as well."""
    return name.split("/")[:-1]


def _lies_in(parts: Sequence[str], scope: Sequence[str], exact: bool) -> bool:
    """Whether a layer's path appears in the scopes, in order. Keras 3 gives every scope a number, Keras 2 none."""
    remaining = iter(scope)
    return all(any((word if exact else _SUFFIX.sub("", word)) == part for word in remaining) for part in parts)


def _has_own_code(layer: Any) -> bool:
    return type(layer).__name__ == "Lambda" or type(layer).__module__.split(".")[0] not in _KERAS
