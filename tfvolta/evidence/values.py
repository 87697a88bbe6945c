"""Any Python value as a JSON value, so that what is read back equals what was written."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Annotated, Any, Mapping

from pydantic import BeforeValidator

_DEEPEST = 40


def text(value: Any) -> Any:
    """A string that every JSON reader takes: bytes of file names that are not UTF-8 become ``\\udcXX`` escapes."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _number(value: float) -> Any:
    """JSON has no NaN and no infinity; they become the words ``NaN``, ``Infinity`` and ``-Infinity``."""
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _structure(value: Any) -> Any:
    """What a structured object says of itself; the object where it says nothing."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="python")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for name in ("tolist", "numpy"):  # NumPy arrays and scalars; eager tensors and variables
        method = getattr(value, name, None)
        if callable(method):
            try:
                return method()
            except Exception:  # a symbolic tensor has the method and no value; evidence must not end a training run
                return str(value)
    return value


def json_value(value: Any, depth: int = 0) -> Any:
    """A value as JSON values: numbers, strings, lists, objects with string keys, true, false and null.

    Args:
        value: Anything; NumPy scalars and arrays, tensors, enumerations, paths, dataclasses and pydantic models
            included. What has no JSON form becomes its ``str``.
        depth: Of the value inside what is being converted.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return json_value(value.value, depth)
    if isinstance(value, str):
        return text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value)
    if depth >= _DEEPEST:
        return text(f"{type(value).__name__} nested deeper than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        return {text(str(_key(key))): json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_value(item, depth + 1) for item in value), key=repr)
    structure = _structure(value)
    return text(str(value)) if structure is value else json_value(structure, depth + 1)


def _key(key: Any) -> Any:
    return key.value if isinstance(key, enum.Enum) else key


Text = Annotated[str, BeforeValidator(text)]
JsonValue = Annotated[Any, BeforeValidator(json_value)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(json_value)]
