"""Arguments that a script gives to ``compile`` and ``fit``, as the plan needs them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tfvolta.data.arguments import without_remainder
from tfvolta.errors import ContradictionWarning
from tfvolta.knobs.drop_remainder import DropRemainder

if TYPE_CHECKING:
    from tfvolta.session import Session


def compile_arguments(session: Session, stack: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Takes care that Keras 2 is never given a string for ``jit_compile``, which it takes for true.

    Args:
        session: The session of the run.
        stack: The Keras whose ``compile`` is called.
        arguments: Its arguments by name.
    """
    asked = arguments.get("jit_compile")
    if stack == "keras3" or not isinstance(asked, str):
        return arguments
    decided = session.config.get("xla.jit")
    value = decided is None  # what Keras 2 takes the string for, where the config leaves XLA alone
    then = f"xla.jit: {decided} decides when fit starts" if decided else "the step is compiled as Keras 2 would have"
    text = f"compile(jit_compile={asked!r}): Keras 2 takes every string for True and knows no 'auto'; {then}"
    session.recorder.warned(text)
    warnings.warn(text, ContradictionWarning, stacklevel=4)
    return {**arguments, "jit_compile": value}


def fit_arguments(session: Session, bridge: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the last, smaller batch where the config asks for it.

    Args:
        session: The session of the run.
        bridge: The bridge of the model's Keras.
        arguments: Arguments of ``fit`` by name, but ``callbacks``.
    """
    if not session.config.get("xla.drop_remainder"):
        return arguments
    changed, session.context.saved[DropRemainder.name] = without_remainder(arguments, bridge.keras.backend.floatx())
    return changed
