"""Which of the three stacks ``tf.keras`` means in a process with this environment and these packages."""

from __future__ import annotations

import difflib
from typing import Mapping, Optional, get_args

from tfvolta.errors import FactsError, Problem
from tfvolta.facts.schema import Stack

STACKS: tuple[str, ...] = get_args(Stack)
_VARIABLE = "TF_USE_LEGACY_KERAS"
# TensorFlow compares with these three words and no others; TRUE or yes leave Keras 3.
_LEGACY = ("1", "true", "True")
_KERAS3 = ("", "0", "false", "False")


def checked_stack(name: str) -> Stack:
    """The name of a stack.

    Raises:
        FactsError: It is none of the three.
    """
    for stack in STACKS:
        if name == stack:
            return stack  # type: ignore[return-value]
    folded = {stack.replace("_", ""): stack for stack in STACKS}
    close = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), folded, n=1, cutoff=0.5)
    raise FactsError(
        f"There is no stack {name!r}.",
        [
            Problem(
                where="stack",
                expected=f"one of {', '.join(STACKS)}",
                received=name,
                why="a stack is the Keras that a script trains with, and the TensorFlow below it",
                fix=f"did you mean {folded[close[0]]}?" if close else f"give one of {', '.join(STACKS)}, or none",
            )
        ],
    )


def find_stack(environ: Mapping[str, str], packages: Mapping[str, str], notes: list[str]) -> Stack:
    """The stack that a script gets without saying more.

    Args:
        environ: The process environment.
        packages: Installed versions, from ``read_packages``.
        notes: Receives what is odd about the choice.
    """
    value: Optional[str] = environ.get(_VARIABLE)
    keras = packages.get("keras", "")
    if keras.startswith("2."):
        return "keras2"
    if value in _LEGACY:
        if "tf_keras" not in packages:
            notes.append(f'{_VARIABLE}={value}, and tf_keras is not installed: pip install "tf_keras"')
        return "tf_keras"
    if value is not None and value not in _KERAS3:
        notes.append(f"{_VARIABLE}={value} is not read as yes: TensorFlow knows 1, true and True; the stack is keras3")
    if not keras and "tensorflow" in packages:
        notes.append("keras is not installed; keras3 is assumed")
    return "keras3"
