"""The train function of a model whose gradients are looked at in some steps."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.gradient_path import WATCH, GradientPath
from tfvolta.bridge.gradient_watch import GradientWatch

_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


class WatchedFunction:
    """Stands in for a model's train function; runs the one with figures in the calls that are looked at.

    Attributes:
        held_functions: The functions that it runs, the plain one first; for what looks for ``tf.function`` objects.
    """

    def __init__(
        self,
        path: GradientPath,
        watch: GradientWatch,
        functions: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        batches: Callable[[], int],
    ):
        """Takes the plain function, and the one with figures.

        Args:
            batches: How many batches the next call has.
        """
        self.held_functions = functions
        self._path = path
        self._watch = watch
        self._batches = batches

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call."""
        plain, watched = self.held_functions
        if not isinstance(iterator, _ITERATORS) or not self._watch.begin_call(self._batches()):
            return plain(iterator)
        updates = self._path.state.updates
        outputs = watched(iterator)
        self._watch.end_call(self._path.settings.every == 1 or self._path.state.updates > updates)
        return outputs


class WatchingFunction:
    """A whole train function, of however many batches, traced with figures in it, whoever traces it."""

    def __init__(self, made: Callable[[Any], Any], path: GradientPath):
        """Takes a train function that Keras has made, and traces it anew."""
        self._made = made
        self._mode = path.mode(WATCH)
        found = graphs.outermost(made)
        self.__wrapped__ = _watching(found[0], path) if found else None

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call."""
        if self.__wrapped__ is None:
            with self._mode:
                return self._made(iterator)
        outputs = self.__wrapped__(iterator)
        if not isinstance(outputs, tf.experimental.Optional):  # of Keras 3
            return outputs
        if not outputs.has_value():
            raise StopIteration
        return outputs.get_value()


def _watching(step: Any, path: GradientPath) -> Any:
    """A function around one that was never traced: it is traced here, in the mode.

    Calling its Python code instead would leave out autograph, which does not look into Keras's package.
    """

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def train_function(iterator: Any) -> Any:
        with path.mode(WATCH):
            return step(iterator)

    return tf.function(train_function, reduce_retracing=True)
