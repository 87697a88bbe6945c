"""The train function of a model whose gradients are reduced once in several batches."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Mapping, Optional

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.gradient_path import ACCUMULATE, UPDATE, GradientPath, InMode
from tfvolta.bridge.kept_batches import KeptIterator

_END = (StopIteration, tf.errors.OutOfRangeError)
_ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


class BoundModel:
    """A model whose train functions are made for one batch a call.

    Attributes:
        model: The model.
        steps: Batches of the next call, as the model has them.
        one_step: A context in which it has one batch a call.
    """

    def __init__(self, model: Any, steps: Callable[[], int], one_step: Callable[[], ContextManager[None]]):
        self.model = model
        self.steps = steps
        self.one_step = one_step


class StepFunction:
    """One of a model's two train functions: that of a mode, which it is traced in whoever traces it.

    Tools that look for ``tf.function`` objects find its own through ``__wrapped__``.
    """

    def __init__(self, made: Callable[[Any], Any], path: GradientPath, modes: tuple[str, ...], model: BoundModel):
        """Takes a train function that Keras has made, and traces it anew."""
        self._made = made
        self._mode = path.mode(*modes)
        # Of several batches in a call only the last would be at hand, and a loop in a graph hands none out.
        self._keeper = path.keeper if model.steps() == 1 else None
        found = graphs.outermost(made)
        step = found[0].python_function if found else None
        keeps = self._keeper is not None
        self.__wrapped__ = None if step is None else _in_mode(step, path.mode(*modes), model, keeps)

    def __call__(self, iterator: Any) -> Any:
        """Trains a batch; one that comes from Python (``train_on_batch``) by Keras's own function."""
        if self.__wrapped__ is not None and isinstance(iterator, _ITERATORS):
            outputs, batch = self.__wrapped__(iterator)
        else:
            kept = iterator if self._keeper is None else KeptIterator(iterator)
            with self._mode:
                outputs = self._made(kept)
            batch = getattr(kept, "batch", ())
        if self._keeper is not None and batch:
            self._keeper.keep(batch[0])
        return outputs


def _in_mode(step: Callable[[Any], Any], mode: InMode, model: BoundModel, keeps: bool) -> Any:
    """A function of one batch that gives back its results, and the batch in a tuple where it is to be kept."""

    def train_function(iterator: Any) -> Any:  # autograph has to reach the script's own train step through it
        kept = KeptIterator(iterator)
        with mode, model.one_step():
            outputs = step(kept if keeps else iterator)
        outputs = outputs.get_value() if isinstance(outputs, tf.experimental.Optional) else outputs  # of Keras 3
        return outputs, kept.batch

    return tf.function(train_function, reduce_retracing=True)


class WindowFunction:
    """Stands in for a model's train function; runs the one whose turn it is, once for each batch of a call.

    A call of several batches (``steps_per_execution``) that make whole windows is one loop in a graph. Others are
    trained one after the other from here, with no callback and no reading of results in between.

    Attributes:
        path: The way of the gradients.
    """

    def __init__(self, path: GradientPath, model: BoundModel, functions: Mapping[str, Callable[[Any], Any]]):
        """Takes over the functions that were made for each mode."""
        self.path = path
        self._model = model
        self._functions = functions
        self._loop: Optional[_Loop] = None
        windows, rest = divmod(model.steps(), path.settings.every)
        if windows and not rest and all(graphs.outermost(each) for each in functions.values()):
            self._loop = _Loop(functions, windows, path.settings.every)

    @property
    def held_functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that it runs, the outermost first; for what looks for ``tf.function`` objects."""
        own = tuple(self._functions.values())
        return own if self._loop is None else (self._loop.function, *own)

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call; the results are those of the last."""
        steps = self._model.steps()
        with self._model.one_step():
            loop = self._loop
            fits = loop is not None and loop.batches == steps and self.path.state.pending == 0
            if loop is not None and fits and isinstance(iterator, _ITERATORS):
                return self._in_a_loop(loop, iterator)
            return self._one_by_one(iterator, steps)

    def _one_by_one(self, iterator: Any, steps: int) -> Any:
        outputs = None
        for done in range(steps):
            try:
                outputs = self.path.step(iterator, self._functions)
            except _END:
                if not done:
                    raise
                break
        return outputs

    def _in_a_loop(self, loop: _Loop, iterator: Any) -> Any:
        before = loop.trained
        try:
            outputs = loop(iterator)
        except _END:
            self.path.advance(loop.count() - before)
            if loop.trained == before:
                raise
            return self._model.model.get_metrics_result()
        self.path.advance(loop.batches)
        return outputs


class _Loop:
    """Whole windows in one graph.

    Attributes:
        batches: Batches of one run.
        function: The ``tf.function`` of the loop; like every train function it takes an iterator alone.
        trained: Batches that it has trained so far.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], Any]], windows: int, every: int):
        self._every = every
        self.batches = windows * every
        self._updates = graphs.outermost(functions[UPDATE])[0]
        self._adds = graphs.outermost(functions[ACCUMULATE])[0]
        self.trained = 0
        with tf.init_scope(), tf.device("CPU:0"):
            self._counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="trained_batches")
        self.function = tf.function(_windows(self, windows), reduce_retracing=True)

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one run."""
        outputs = self.function(iterator)
        self.trained += self.batches
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
        outputs, _ = function(iterator)
        # A batch counts once all of its step was done, so that the count is right where the data end in the loop, and
        # what waits for the count begins after the step.
        with tf.control_dependencies(tf.nest.flatten(outputs)):
            trained = self._counter.assign_add(1)
        return tf.convert_to_tensor(trained), outputs


def _windows(loop: _Loop, number: int) -> Callable[[Any], Any]:
    """The first window, and as many others as asked for."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def windows(iterator: Any) -> Any:
        def another(done: Any, _: Any) -> Any:
            trained, outputs = loop.window(iterator)
            with tf.control_dependencies([trained]):
                return done + 1, outputs

        trained, outputs = loop.window(iterator)
        with tf.control_dependencies([trained]):
            first = tf.constant(1) + 0
        return tf.while_loop(lambda done, _: done < number, another, [first, outputs])[1]

    return windows  # type: ignore[no-any-return]
