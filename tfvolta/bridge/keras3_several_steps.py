"""Keras 3: several batches in one call of the train function, under a strategy with several replicas.

With ``steps_per_execution`` above 1 Keras 3 runs each step inside a ``tf.cond``. A step of several replicas cannot be
placed there: every fit, evaluation included, ends in ``InvalidArgumentError: You must feed a value for placeholder
tensor ... with dtype int32``. Here the condition only fetches the next batch, and the step is in the loop. A call
in which the data run out ends with the steps that there were, as in Keras's own.

Source: keras/src/backend/tensorflow/trainer.py, ``TensorFlowTrainer._make_function`` of Keras 3.15.
"""

from __future__ import annotations

import types
from typing import Any, Callable

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import reduce_per_replica

_NAME = "_make_function"


def mend(model: Any) -> bool:
    """Makes a model of several replicas use this loop where it runs several batches per call; False if not.

    It sits on the instance and looks at ``steps_per_execution`` when a function is made, so that a later ``compile``
    is served too. Functions that exist and cannot work are made anew.
    """
    strategy = getattr(model, "_distribute_strategy", None)
    if strategy is None or strategy.num_replicas_in_sync < 2 or _NAME in model.__dict__:
        return False
    model.__dict__[_NAME] = types.MethodType(_make_function, model)
    if model.steps_per_execution > 1:
        for kind in ("train", "test"):
            if getattr(model, f"{kind}_function", None) is not None:
                getattr(model, f"make_{kind}_function")(force=True)
    return True


def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replaces ``TensorFlowTrainer._make_function``."""
    if self.steps_per_execution == 1 or self.run_eagerly:
        own: Callable[[Any], Any] = type(self)._make_function(self, step_function)
        return own

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def one_step(data: Any) -> Any:
        outputs = self.distribute_strategy.run(step_function, args=(data,))
        return reduce_per_replica(outputs, self.distribute_strategy, reduction="auto")

    compiled = tf.function(one_step, reduce_retracing=True, jit_compile=self.jit_compile)
    several = tf.function(_loop(self, self._autoconvert_optionals(compiled)), reduce_retracing=True)

    def function(iterator: Any) -> Any:
        return several(iterator)

    return function


def _loop(model: Any, one_step: Callable[[Any], Any]) -> Any:
    """The first step, and then others for as long as there are data and the call has room."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def several_steps(iterator: Any) -> Any:
        most = model.steps_per_execution
        outputs = one_step(iterator.get_next())

        def goes_on(step: Any, _: Any, batch: Any) -> Any:
            return tf.logical_and(step < most, batch.has_value())

        def next_step(step: Any, _: Any, batch: Any) -> Any:
            done = one_step(batch.get_value())
            # A batch that is fetched and not used would be lost to the next call.
            following = tf.cond(step + 1 < most, iterator.get_next_as_optional, lambda: batch)
            return step + 1, done, following

        start = (tf.constant(1), outputs, iterator.get_next_as_optional())
        return tf.while_loop(goes_on, next_step, start)[1]

    return several_steps
