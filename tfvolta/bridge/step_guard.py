"""What stands around a model's train or test function and hears that memory ran out.

Keras has no hook for an exception in ``fit``. The function that it calls for each batch is the nearest place: there the
failure is heard before anything is unwound, whether the fit belongs to ``tfvolta run``, to a config's callbacks or to
one callback alone.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge import datasets, first_step, running_fit
from tfvolta.bridge.first_step import FirstCall
from tfvolta.bridge.guard_records import FailedStep, GuardedSteps, OnFailure
from tfvolta.bridge.out_of_memory import ran_out
from tfvolta.bridge.split_steps import SplitSteps
from tfvolta.bridge.step_watch import Before, StepWatch, spec_shapes, watch
from tfvolta.bridge.traceback_frames import is_updating
from tfvolta.bridge.whole_batches import why_whole

_GUARDED = "_tfvolta_guarded"
_DEFAULT_BATCH = 32  # Keras's


class StepGuard:
    """Stands in for a model's train function.

    Tools that look for ``tf.function`` objects find them through ``__wrapped__``.

    Attributes:
        on_failure: ``(failed, iterator) -> logs``: raises, or trains the batch in another way and returns its logs.
    """

    def __init__(self, model: Any, function: Callable[[Any], Any], watched: StepWatch, on_failure: OnFailure):
        self.__wrapped__ = function
        self.on_failure = on_failure
        self._model = model
        self._watch = watched

    def __call__(self, iterator: Any) -> Any:
        """Trains the batches of one call."""
        before = self._watch.before(self._model)
        try:
            return self.__wrapped__(iterator)
        except Exception as error:
            if not ran_out(error):
                raise
            failed = self._examined(error, before, iterator)
            return self.on_failure(failed, iterator)

    def _examined(self, error: BaseException, before: Before, iterator: Any) -> FailedStep:
        watched = self._watch
        counts = watched.counted(self._model, before)
        updates, half_done = None, None
        lost = [name for name, variable in (watched.early or {}).items() if variable is None]
        if counts is not None:
            begun, updates = counts
            half_done = begun != updates
        elif self._model.run_eagerly:
            half_done = is_updating(error)
            updates = None if half_done else 0
        put_back: list[str] = []
        if half_done is False and not updates:
            put_back = watched.put_back(before)
        elif updates and not half_done:
            lost += [name for name, variable in (watched.early or {}).items() if variable is not None]
        shapes = watched.shapes(iterator)
        return FailedStep(
            error, shapes, updates, half_done, tuple(put_back), tuple(dict.fromkeys(lost)), watched.compiled
        )


class TestGuard:
    """Stands in for a model's test function, which changes nothing but metrics."""

    __test__ = False

    def __init__(self, function: Callable[[Any], Any], on_failure: OnFailure):
        self.__wrapped__ = function
        self.on_failure = on_failure

    def __call__(self, iterator: Any) -> Any:
        """Evaluates the batches of one call."""
        try:
            return self.__wrapped__(iterator)
        except Exception as error:
            if not ran_out(error):
                raise
            return self.on_failure(
                FailedStep(error, spec_shapes(getattr(iterator, "element_spec", None)), 0, False), iterator
            )


class GuardPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def watch_steps(self: Any, model: Any) -> bool:
        """Makes a model's train step tell what it did when it fails; a traced one is traced anew."""
        _, new = watch(model, lambda: self.training_variables(model))
        if new and getattr(model, "train_function", None) is not None:
            self.reset_functions(model)
        return new

    def guard_steps(self: Any, model: Any, on_failure: OnFailure, splits: bool = False) -> None:
        """Calls ``on_failure`` when memory runs out in a train step; to be called before each call of the function.

        Functions that are made anew in the middle of a fit are guarded too.
        """
        bridge: Any = self
        watched, _ = watch(model, lambda: bridge.training_variables(model))

        def guard(_: Any = None) -> None:
            function = model.train_function
            if isinstance(function, StepGuard):
                function.on_failure = on_failure
            elif function is not None and not isinstance(function, FirstCall):
                inner = SplitSteps(model, function, watched, add_up) if splits else function
                model.train_function = StepGuard(model, inner, watched, on_failure)

        def add_up(batches: int) -> Any:
            guarded = model.train_function
            bridge.set_reduction(model, every=batches)
            made, model.train_function = model.train_function, guarded
            return made

        function = model.train_function
        if isinstance(function, FirstCall) and _GUARDED not in function.__dict__:
            function.__dict__[_GUARDED] = True
            first_step.before_first_step(model, guard)  # behind the others, which may make the function anew
        guard()

    def guarded_steps(self: Any, model: Any) -> GuardedSteps:
        """What the guard has seen so far; one device read."""
        watched, _ = watch(model, lambda: self.training_variables(model))
        split = getattr(getattr(model, "train_function", None), "__wrapped__", None)
        batches, parts = (split.batches, split.parts) if isinstance(split, SplitSteps) else (0, 0)
        updates = None if watched.early is None or watched.uncounted(model) else int(watched.counter.ended)
        return GuardedSteps(tuple(watched.early or ()), updates, batches, parts)

    def why_whole(self: Any, model: Any) -> str:
        """Why a batch cannot be trained in parts with the update of the whole; empty where it can."""
        return why_whole(model, self.layers(model))

    def validation_batch(self, model: Any) -> Optional[int]:
        """Rows of a validation batch in the running ``fit``; None where its data do not say."""
        given = running_fit.local_variables(model) or {}
        data = given.get("validation_data")
        if isinstance(data, tf.data.Dataset):
            found = datasets.batching(data)
            return found.batch if found is not None else datasets.static_batch(data.element_spec)
        size = given.get("validation_batch_size") or given.get("batch_size")
        return None if data is None and not given.get("validation_split") else int(size or _DEFAULT_BATCH)

    def fit_callbacks(self, model: Any) -> list[Any]:
        """The callbacks of the running ``fit`` of a model."""
        return running_fit.callbacks(model)

    def guard_tests(self, model: Any, on_failure: OnFailure) -> None:
        """The same for the function of ``evaluate``."""
        function = getattr(model, "test_function", None)
        if function is None:  # Keras 2 takes hold of it before the first hook of an evaluation
            made = model.make_test_function()
            function = model.test_function or made
        if isinstance(function, TestGuard):
            function.on_failure = on_failure
        elif function is not None:
            model.test_function = TestGuard(function, on_failure)

    def unguard_steps(self: Any, model: Any) -> None:
        """Puts the train and test functions back."""
        for name, kind in (("train_function", StepGuard), ("test_function", TestGuard)):
            function = getattr(model, name, None)
            if isinstance(function, kind):
                inner = function.__wrapped__
                setattr(model, name, inner)
                if isinstance(inner, SplitSteps):
                    model.train_function = inner.__wrapped__
                    if inner.parts:
                        self.set_reduction(model, every=1)
