"""The train function of a model whose gradients are reduced once in several batches."""

from __future__ import annotations

from typing import Any, Callable, ContextManager

import tensorflow as tf

from tfvolta.bridge.gradient_path import GradientPath

_END = (StopIteration, tf.errors.OutOfRangeError)


class WindowFunction:
    """Stands in for a model's train function; runs the one whose turn it is, once for each batch of a call.

    With ``steps_per_execution`` above 1 the batches of a call are trained one after the other from here, with no
    callback and no reading of results in between. The loop is not in the graph, because where the data end inside a
    window only Python can know how far it came.

    Attributes:
        path: The way of the gradients; its ``functions`` are those that are run.
    """

    def __init__(self, path: GradientPath, steps: Callable[[], int], one_step: Callable[[], ContextManager[None]]):
        """Takes over a path whose functions were made.

        Args:
            steps: Batches of a call.
            one_step: A context in which the model has ``steps_per_execution`` 1, for which the functions were made.
        """
        self.path = path
        self._steps = steps
        self._one_step = one_step

    @property
    def held_functions(self) -> tuple[Callable[[Any], Any], ...]:
        """The functions that it runs, the one that updates first; for what looks for ``tf.function`` objects."""
        return tuple(self.path.functions.values())

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call; the results are those of the last."""
        steps, outputs = self._steps(), None
        with self._one_step():
            for done in range(steps):
                try:
                    outputs = self.path.step(iterator)
                except _END:
                    if not done:
                        raise
                    break
        return outputs
