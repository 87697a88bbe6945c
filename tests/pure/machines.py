"""Recorded machines for tests of plans."""

from __future__ import annotations

from typing import Any

from tfvolta.facts.record import load
from tfvolta.facts.schema import Facts


def machine(name: str, **changes: Any) -> Facts:
    """A recorded machine, such as ``dgx1``, with some facts changed."""
    return load(name).model_copy(update=changes)
