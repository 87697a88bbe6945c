"""Where the variables of a model and its optimiser live, shard by shard; the same for every Keras."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow as tf

from tfvolta.bridge.base import ServedPart


def served_parts(variables: Iterable[Any]) -> dict[str, list[ServedPart]]:
    """The parts of each variable, by its name; one for a variable that is whole.

    Args:
        variables: Of any Keras or TensorFlow; shards of one variable may be listed one by one, as Keras 2 does.
    """
    found: dict[str, list[ServedPart]] = {}
    names: dict[int, str] = {}
    for variable in variables:
        value = getattr(variable, "_value", variable)
        whole = _container(value)
        # Two variables may have one name; Keras 3's path and the object itself tell them apart.
        key = id(whole)
        if key not in names:
            name = str(getattr(variable, "path", None) or _plain(whole.name if whole is not value else value.name))
            names[key] = name if name not in found else f"{name} ({len(names)})"
            found[names[key]] = [_part(part) for part in _parts(whole)]
    return found


def _container(value: Any) -> Any:
    """The sharded variable that a shard belongs to, or the variable itself."""
    reference = getattr(value, "_sharded_container", None)
    whole = reference() if callable(reference) else None
    return value if whole is None else whole


def _parts(whole: Any) -> list[Any]:
    is_sharded = isinstance(whole, tf.__internal__.distribute.ShardedVariable)
    return list(whole.variables) if is_sharded else [whole]


def _part(variable: Any) -> ServedPart:
    shape = variable.shape.as_list()
    elements = 1
    for length in shape:
        elements *= int(length)
    return ServedPart(variable.device, int(shape[0]) if shape else 0, elements * int(variable.dtype.size or 0))


def _plain(name: str) -> str:
    return name.split(":", 1)[0]
