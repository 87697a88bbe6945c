"""The error that is raised when memory ran out: TensorFlow's own class, with what a reader needs to go on."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow as tf

from tfvolta.errors import Problem, TfvoltaError
from tfvolta.memory.exhaustion import is_exhaustion


class OutOfMemoryError(TfvoltaError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
    """Memory ran out in ``fit``; caught as ``tf.errors.ResourceExhaustedError`` too.

    Attributes:
        original: TensorFlow's error, which is its cause. Keras drops the cause of what it raises again (``raise e from
            None``), so this is kept beside it.
        record: What was found out, as it is in the evidence.
        exit_code: 1: the script and the config could be used.
    """

    exit_code = 1

    def __init__(self, message: str, problems: Iterable[Problem], original: BaseException, record: Any):
        found = tuple(problems)
        text = str(TfvoltaError(message, found))
        named = getattr(original, "node_def", None), getattr(original, "op", None)
        tf.errors.ResourceExhaustedError.__init__(self, *named, text)
        self.problems, self.summary = found, message
        self.original = original
        self.record = record

    @property
    def __cause__(self) -> BaseException:
        return self.original

    @__cause__.setter
    def __cause__(self, cause: Any) -> None:
        """The original stays the cause."""

    def __str__(self) -> str:
        return str(self.message)


def ran_out(error: BaseException) -> bool:
    """Whether an error means that memory ran out, whatever its class."""
    if isinstance(error, OutOfMemoryError):
        return False
    return isinstance(error, (tf.errors.OpError, MemoryError, RuntimeError)) and is_exhaustion(
        type(error).__name__, str(error)
    )
