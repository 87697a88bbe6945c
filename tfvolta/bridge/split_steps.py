"""Trains batches that memory is too small for in parts, with one update a batch.

A batch has to be in hand when its step fails, so it is taken from the iterator here and given to the train function as
Keras's ``train_on_batch`` does. Its parts go through the window that ``communication.reduce_every`` uses: the gradients
of all but the last are added up, and the last one's step updates with their mean.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.out_of_memory import ran_out
from tfvolta.bridge.step_watch import Before, StepWatch
from tfvolta.bridge.whole_batches import divisors, parts_of, rows_of, size_of

_Install = Callable[[int], Any]


class SplitSteps:
    """Stands in for a model's train function in a fit that may split batches.

    Attributes:
        batches: Batches that were trained in parts.
        parts: In how many the last one was.
    """

    def __init__(self, model: Any, function: Callable[[Any], Any], watched: StepWatch, install: _Install):
        """Takes over a train function.

        Args:
            model: The model.
            function: Its train function.
            watched: The watch of its steps.
            install: Makes the model add up gradients over so many batches; 1 for none.
        """
        self.__wrapped__ = function
        self.batches = self.parts = 0
        self._model, self._watch, self._install = model, watched, install
        self._whole = _on_data(function)
        self._split: Optional[Callable[[Any], Any]] = None
        self._too_large: Optional[int] = None
        self._fits = 0  # size of the largest part that was trained
        self._done = 0  # parts of the present batch that were trained

    @property
    def held_functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that it runs; for what looks for ``tf.function`` objects."""
        return tuple(each for each in (self._whole, self._split) if each is not None)

    def __call__(self, iterator: Any) -> Any:
        """Trains the next batch, in parts where one of its size did not fit before.

        Raises:
            tf.errors.OpError: Not even parts of one row fit, or the batch has no rows to part.
        """
        if not isinstance(iterator, tf.data.Iterator):
            return self.__wrapped__(iterator)
        data = next(iterator)
        before = self._watch.keep(self._model)
        if self._too_large is None or size_of(data) < self._too_large:
            try:
                return self._whole(data)
            except Exception as error:
                if not ran_out(error) or not self._can_split(data, before):
                    raise
                self._too_large = size_of(data)
                self._watch.put_back(before)
                self._watch.counter.back_to(before.counts)
                return self._in_parts(data, before, error)
        return self._in_parts(data, before, None)

    def _can_split(self, data: Any, before: Before) -> bool:
        """Whether a failed step has updated nothing, and its batch has rows to part."""
        counts = self._watch.counted(self._model, before)
        return counts == (0, 0) and (rows_of(data) or 1) > 1

    def _in_parts(self, data: Any, before: Before, error: Optional[BaseException]) -> Any:
        rows, size = rows_of(data) or 1, size_of(data)
        least = -(-size // self._fits) if self._fits else 2
        for number in divisors(rows, least):
            try:
                outputs = self._train(data, number)
            except Exception as failure:
                begun_and_ended = self._watch.counted(self._model, before)
                if not ran_out(failure) or begun_and_ended != (self._done, self._done):
                    raise
                self._watch.put_back(before)
                self._watch.counter.back_to(before.counts)
                error = failure
                continue
            self.batches += 1
            _count_once(before)
            self.parts, self._fits = number, max(self._fits, size // number)
            return outputs
        assert error is not None
        raise error

    def _train(self, data: Any, number: int) -> Any:
        """One batch in so many parts."""
        if self._split is None or self.parts != number:
            self._split = self._install(number)
            self.parts = number
        outputs, self._done = None, 0
        iterator = iter(parts_of(data, number))
        for _ in range(number):
            outputs = self._split(iterator)
            self._done += 1
        self._watch.counter.forget(number - 1)
        return outputs


def _count_once(before: Before) -> None:
    """Lets Keras 2's count of batches go on by one for all parts of a batch."""
    for name, variable, value in before.kept:
        if name == "train_counter":
            variable.assign(value + 1)


def _on_data(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A train function that is given a batch instead of an iterator."""
    found = graphs.outermost(function)
    if not found:  # the step runs without a graph
        return lambda data: function(iter([data]))
    step = found[0].python_function

    def train_function(data: Any) -> Any:  # autograph has to reach the script's own train step through it
        outputs = step(_Held(data))
        return outputs.get_value() if isinstance(outputs, tf.experimental.Optional) else outputs  # of Keras 3

    return tf.function(train_function, reduce_retracing=True)  # type: ignore[no-any-return]


class _Held:
    """An iterator over one batch, as a train function reads it while it is traced."""

    def __init__(self, data: Any):
        self._data = data

    def __iter__(self) -> _Held:
        return self

    def __next__(self) -> Any:
        return self._data

    def get_next(self) -> Any:
        """The batch."""
        return self._data
