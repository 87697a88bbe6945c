"""Counts the updates of a traced train step: when their writes begin, and when they are done."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

Marks = tuple[Any, Any]


def plain_variable(value: Any, **arguments: Any) -> Any:
    """A variable of one place, inside the scope of a strategy too, and past a graph that is being traced."""
    with tf.init_scope():
        return ResourceVariable(value, trainable=False, **arguments)


class UpdateCounter:
    """Two counts in variables, which the step's own graph goes on with.

    Attributes:
        begun: Updates whose writes have begun.
        ended: Updates whose writes are done.
    """

    def __init__(self) -> None:
        self.begun = plain_variable(tf.zeros([], tf.int64), name="updates_begun")
        self.ended = plain_variable(tf.zeros([], tf.int64), name="updates_ended")

    def count_one(self) -> None:
        """An update that is done whole or not at all."""
        self.begun.assign_add(1, read_value=False)
        self.ended.assign_add(1, read_value=False)

    def mark(self) -> Marks:
        """The present counts, without waiting for a device."""
        return self.begun.read_value(), self.ended.read_value()

    def since(self, marks: Marks) -> tuple[int, int]:
        """Updates that have begun and that have ended since; reads the device."""
        return int(self.begun) - int(marks[0]), int(self.ended) - int(marks[1])

    def back_to(self, marks: Optional[Marks]) -> None:
        """Forgets what was counted since; nothing where nothing was marked."""
        if marks is not None:
            self.begun.assign(marks[0])
            self.ended.assign(marks[1])

    def forget(self, number: int) -> None:
        """Forgets so many updates."""
        self.begun.assign_sub(number)
        self.ended.assign_sub(number)
