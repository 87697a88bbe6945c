"""What a knob remembers of each model that it changed, for as long as that model lives.

A session can outlive many models, as in cross-validation in a notebook. What undoing needs holds layers and variables,
so it is kept on the model itself and goes with it; the session holds only a weak reference.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Optional

from tfvolta.knobs.base import Context

_KEY = "_tfvolta_remembered"
_LIST = "models of "
_SESSION = "session of remembered models"


class _Memory:
    """Values by session and knob, on one model; an opaque object, so that no Keras looks for layers in it."""

    def __init__(self) -> None:
        self.values: dict[tuple[object, str], Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Memory:
        return _Memory()  # a copied model was changed by nobody


@dataclasses.dataclass(frozen=True)
class Remembered:
    """One model with what a knob remembers of it, and the bridge to its Keras."""

    model: Any
    bridge: Any
    value: Any


def remember(context: Context, name: str, value: Any) -> None:
    """Keeps a value for the context's model, in place of an earlier one."""
    memory = context.model.__dict__.setdefault(_KEY, _Memory())
    memory.values[_key(context, name)] = value
    models = context.saved.setdefault(_LIST + name, [])
    if all(reference() is not context.model for reference, _ in models):
        models[:] = [(reference, bridge) for reference, bridge in models if reference() is not None]
        models.append((weakref.ref(context.model), context.bridge))


def recall(context: Context, name: str) -> Optional[Any]:
    """What is remembered of the context's model; None where nothing is."""
    memory = getattr(context.model, "__dict__", {}).get(_KEY)
    return None if memory is None else memory.values.get(_key(context, name))


def forget_all(context: Context, name: str) -> list[Remembered]:
    """Everything that is remembered of models that still live, the last one first; it is remembered no longer."""
    found = []
    for reference, bridge in reversed(context.saved.pop(_LIST + name, [])):
        model = reference()
        memory = None if model is None else model.__dict__.get(_KEY)
        if memory is not None and _key(context, name) in memory.values:
            found.append(Remembered(model, bridge, memory.values.pop(_key(context, name))))
    return found


def _key(context: Context, name: str) -> tuple[object, str]:
    """Names a knob of this session; an object of its own, since a number could be that of a session long gone."""
    return context.saved.setdefault(_SESSION, object()), name
