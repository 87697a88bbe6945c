"""The list that a callback is called from, found on the call stack; Keras tells a callback nothing of the others."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional


def list_of(callback: Any) -> Optional[list[Any]]:
    """The callbacks that are being called together with one; None outside of a call by a CallbackList."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        callbacks = getattr(owner, "callbacks", None) if owner is not callback else None
        if isinstance(callbacks, list) and any(each is callback for each in callbacks):
            return callbacks
        frame = frame.f_back
    return None


def remove_others(callback: Any, unwanted: Callable[[Any], bool]) -> list[Any]:
    """Takes callbacks out of the list that a callback is called from; those that come after it are never called.

    Args:
        callback: Stays, whatever ``unwanted`` says.
        unwanted: Which of the others go.

    Returns:
        What was taken out.
    """
    callbacks = list_of(callback) or []
    removed = [each for each in callbacks if each is not callback and unwanted(each)]
    for each in removed:
        callbacks.remove(each)
    return removed
