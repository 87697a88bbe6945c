"""Where variables live, shard by shard; the same for every Keras."""

from __future__ import annotations

import re
from typing import Any, Iterable

import tensorflow as tf

from tfvolta.bridge.base import ServedPart

_SUFFIX = re.compile(r"(/part_\d+)?(:\d+)?$")


def served_parts(variables: Iterable[Any]) -> dict[str, list[ServedPart]]:
    """The parts of each variable, by its name; one for a variable that is whole.

    Args:
        variables: Of any Keras or TensorFlow; shards of one variable may be listed one by one, as Keras 2 does.
    """
    found: dict[str, list[ServedPart]] = {}
    seen: set[int] = set()
    for variable in variables:
        value = whole(getattr(variable, "_value", variable))
        if id(value) in seen:
            continue
        seen.add(id(value))
        parts = list(value.variables) if isinstance(value, tf.__internal__.distribute.ShardedVariable) else [value]
        name = str(getattr(variable, "path", None) or _SUFFIX.sub("", parts[0].name))
        # Two variables may have one name, and a set of parts has one name only.
        found[name if name not in found else f"{name} ({len(found)})"] = [_part(part) for part in parts]
    return found


def whole(variable: Any) -> Any:
    """The sharded variable that one of TensorFlow's variables is a shard of, or the variable itself."""
    reference = getattr(variable, "_sharded_container", None)
    container = reference() if callable(reference) else None
    return variable if container is None else container


def _part(variable: Any) -> ServedPart:
    shape = [int(length) for length in variable.shape]
    elements = 1
    for length in shape:
        elements *= length
    return ServedPart(variable.device, shape[0] if shape else 0, elements * int(variable.dtype.size or 0))
