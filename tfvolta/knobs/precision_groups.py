"""Which layers of a model compute in which precision, and what the traced step multiplies in it."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Sequence

from tfvolta.bridge.graphs import PRODUCT_WORDS
from tfvolta.bridge.layer_patterns import matches, with_inner

COMPUTE_DTYPES = {"float32": "float32", "mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class PrecisionGroups:
    """Paths of a model's layers, by what they compute in.

    Attributes:
        inside: Compute in the policy's dtype.
        islands: Compute in float32 as the config asks.
        outside: Compute in another dtype, and the config does not ask for it.
    """

    inside: tuple[str, ...]
    islands: tuple[str, ...]
    outside: tuple[str, ...]


def group_layers(bridge: Any, model: Any, settings: Any) -> PrecisionGroups:
    """Sorts the layers of a model.

    Args:
        bridge: The bridge of the model's Keras.
        model: Any Keras model.
        settings: ``tfvolta.config.schema.MixedPrecision``.
    """
    dtype = COMPUTE_DTYPES[settings.policy]
    named = bridge.layers(model)
    matched = [path for path, layer in named if matches(path, layer, settings.float32_layers)]
    kept = with_inner(matched, [path for path, _ in named])
    outputs = set(bridge.output_layers(model)) if settings.float32_output else set()
    inside, islands, outside = [], [], []
    for path, computed in bridge.compute_dtypes(model).items():
        if computed not in _FLOATING:
            continue  # integers and strings have no precision to change
        island = path in outputs or path in kept
        if computed == "float32" and island:
            islands.append(path)
        elif computed == dtype:
            inside.append(path)
        else:
            outside.append(path)
    return PrecisionGroups(tuple(inside), tuple(islands), tuple(outside))


def products(operations: Mapping[str, int]) -> dict[str, int]:
    """Matrix products and convolutions of a traced step, counted by dtype."""
    counts: dict[str, int] = {}
    for key, number in operations.items():
        operation, _, dtype = key.rstrip("]").partition("[")
        if dtype in _FLOATING and any(word in operation for word in PRODUCT_WORDS):
            counts[dtype] = counts.get(dtype, 0) + number
    return counts


def variables_not_float32(model: Any) -> list[str]:
    """Trainable variables of a model that are not float32."""
    try:
        variables = model.trainable_variables
    except ValueError:
        return []  # Keras 2 has no list of them before a Sequential without an input is built
    found = []
    for variable in variables:
        dtype = getattr(variable.dtype, "name", variable.dtype)
        if str(dtype) in ("float16", "bfloat16"):
            found.append(getattr(variable, "path", variable.name))
    return found


def listed(names: Sequence[str]) -> str:
    """Names for a sentence, the first eight of a long list."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
