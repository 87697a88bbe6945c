"""The train function of a model whose gradients are reduced once in several batches."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Optional

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.gradient_path import ACCUMULATE, UPDATE, GradientPath

_END = (StopIteration, tf.errors.OutOfRangeError)
_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


class WindowFunction:
    """Stands in for a model's train function; runs the one whose turn it is, once for each batch of a call.

    A call of several batches (``steps_per_execution``) that make whole windows is one loop in a graph. Others are
    trained one after the other from here, with no callback and no reading of results in between.

    Attributes:
        path: The way of the gradients; its ``functions`` are those that are run.
    """

    def __init__(
        self,
        path: GradientPath,
        steps: Callable[[], int],
        one_step: Callable[[], ContextManager[None]],
        results: Callable[[], Any],
    ):
        """Takes over a path whose functions were made.

        Args:
            steps: Batches of a call.
            one_step: A context in which the model has ``steps_per_execution`` 1, for which the functions were made.
            results: The model's metrics, for a call that ended inside its loop.
        """
        self.path = path
        self._steps = steps
        self._one_step = one_step
        self._results = results
        self._loop: Optional[_Loop] = None
        several = steps() > 1
        if several and all(graphs.outermost(each) for each in path.functions.values()):
            self._loop = _Loop(path)

    @property
    def held_functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that it runs, the outermost first; for what looks for ``tf.function`` objects."""
        own = tuple(self.path.functions.values())
        return own if self._loop is None else (self._loop.function, *own)

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call; the results are those of the last."""
        steps = self._steps()
        with self._one_step():
            whole = self.path.state.pending == 0 and steps % self.path.settings.every == 0
            if steps > 1 and whole and self._loop is not None and isinstance(iterator, _ITERATORS):
                return self._in_a_loop(self._loop, iterator, steps)
            return self._one_by_one(iterator, steps)

    def _one_by_one(self, iterator: Any, steps: int) -> Any:
        outputs = None
        for done in range(steps):
            try:
                outputs = self.path.step(iterator)
            except _END:
                if not done:
                    raise
                break
        return outputs

    def _in_a_loop(self, loop: _Loop, iterator: Any, steps: int) -> Any:
        before = loop.trained
        try:
            outputs = loop(iterator, steps)
        except _END:
            self.path.advance(loop.count() - before)
            if loop.trained == before:
                raise
            return self._results()
        self.path.advance(steps)
        return outputs


class _Loop:
    """Whole windows in one graph.

    Attributes:
        function: The ``tf.function`` of the loop.
        trained: Batches that it has trained so far.
    """

    def __init__(self, path: GradientPath):
        self._every = path.settings.every
        self._updates = graphs.outermost(path.functions[UPDATE])[0]
        self._adds = graphs.outermost(path.functions[ACCUMULATE])[0]
        self.trained = 0
        with tf.init_scope(), tf.device("CPU:0"):
            self._counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="trained_batches")
        self.function = tf.function(_windows(self), reduce_retracing=True)

    def __call__(self, iterator: Any, steps: int) -> Any:
        """Trains so many batches."""
        outputs = self.function(iterator, tf.constant(steps // self._every))
        self.trained += steps
        return outputs

    def count(self) -> int:
        """Batches trained so far, where a call has ended inside the loop; reads a variable of the host."""
        self.trained = int(self._counter.numpy())
        return self.trained

    def window(self, iterator: Any) -> tuple[Any, Any]:
        """The operations of one window: how many batches were trained so far, and the results of its last batch."""

        def add(number: Any) -> Any:
            with tf.control_dependencies([self._run(self._adds, iterator)[0]]):
                return number + 1

        added = tf.while_loop(lambda number: number < self._every - 1, add, [tf.constant(0)])
        with tf.control_dependencies(tf.nest.flatten(added)):
            return self._run(self._updates, iterator)

    def _run(self, function: Any, iterator: Any) -> tuple[Any, Any]:
        outputs = function(iterator)
        # A batch counts once all of its step was done, so that the count is right where the data end in the loop, and
        # what waits for the count begins after the step.
        with tf.control_dependencies(tf.nest.flatten(outputs, expand_composites=True)):
            trained = self._counter.assign_add(1)
        if isinstance(outputs, tf.experimental.Optional):  # as Keras 3's own step returns them
            outputs = outputs.get_value()
        return tf.convert_to_tensor(trained), outputs


def _windows(loop: _Loop) -> Callable[[Any, Any], Any]:
    """The first window, and as many others as asked for."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def windows(iterator: Any, number: Any) -> Any:
        def another(done: Any, _: Any) -> Any:
            trained, outputs = loop.window(iterator)
            with tf.control_dependencies([trained]):
                return done + 1, outputs

        trained, outputs = loop.window(iterator)
        with tf.control_dependencies([trained]):
            first = tf.constant(1) + 0
        return tf.while_loop(lambda done, _: done < number, another, [first, outputs])[1]

    return windows  # type: ignore[no-any-return]
