"""Keras 3: the loop around a train or test step, corrected where Keras's own runs wrongly.

Faults of Keras 3.15 that are mended:

- A batch is fetched and the step run in one graph, in which the optimiser's count does not wait for the batch. Where
  data of unknown size run out, the count goes on by one although nothing was trained, once an epoch. Here it waits.
- With ``steps_per_execution`` above 1 each step runs inside a ``tf.cond``. A step of several replicas cannot be placed
  there: every fit, evaluation included, ends in ``InvalidArgumentError: You must feed a value for placeholder tensor
  ... with dtype int32``. Here the condition only fetches the next batch, and the step is in the loop itself. A call in
  which the data run out ends with the steps that there were, as in Keras's own.
- ``jit_compile=True`` compiles around all replicas, which puts variables of several devices into one cluster. Here
  each replica's step is compiled by itself, as Keras 2 does it (``tfvolta.bridge.keras3_replica_step``).
- Between two steps of a call Keras's own loop asks the GPU twice whether it goes on: it combines what the host knows
  with ``logical_and``, which has a kernel on the GPU. Each question waits for all that was launched, so that the host
  never runs ahead of the device; on one H200 that left it idle for a fifth of each step. Here the host decides.
- With several workers the logs of a step are reduced along an axis that they do not have: every fit ends in
  ``Invalid reduction dimension 0 for input with 0 dimensions``. Here they are averaged.

Source: keras/src/backend/tensorflow/trainer.py, ``TensorFlowTrainer._make_function``.
"""

from __future__ import annotations

import types
from typing import Any, Callable

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tfvolta.bridge import all_reduce, keras3_replica_step, running_fit, workers
from tfvolta.bridge.worker_service import serve_workers

_NAME = "_make_function"
_WAITS = "_tfvolta_waits_for_batches"
_Step = Callable[[Any], Any]
own_make_function = TensorFlowTrainer._make_function


def mend(model: Any) -> bool:
    """Gives a model the corrected loop where it needs one; False where nothing was changed.

    It sits on the instance and looks at the model each time a function is made, so that a later ``compile`` is served
    too. Keras's own loop stays wherever it runs rightly. A function that exists and does not is made anew.
    """
    all_reduce.install(model.distribute_strategy)
    if workers.spans_workers(model.distribute_strategy):
        serve_workers("keras3")
    if type(model)._make_function is not TensorFlowTrainer._make_function:
        return False  # a loop of the user's own
    before = _NAME in model.__dict__ and _corrected(model)
    if running_fit.runs_out(model):
        model.__dict__[_WAITS] = True
    _install(model)
    changed = keras3_replica_step.correct_optimizer(model) or (_corrected(model) and not before)
    if changed:
        for kind in ("train", "test"):
            if getattr(model, f"{kind}_function", None) is not None:
                getattr(model, f"make_{kind}_function")(force=True)
    return changed


def wait_for_batches(model: Any) -> None:
    """Makes the functions that are made from now on wait for their batch; for steps that may run into the end."""
    if type(model)._make_function is TensorFlowTrainer._make_function:
        model.__dict__[_WAITS] = True
        _install(model)


def _install(model: Any) -> None:
    model.__dict__[_NAME] = types.MethodType(make_function, model)


def _corrected(model: Any) -> bool:
    """Whether the loop is another than Keras's. A step that XLA compiles is one operation that waits for its batch."""
    strategy = model.distribute_strategy
    if workers.spans_workers(strategy):
        return True
    if model.run_eagerly:
        return False
    if model.steps_per_execution > 1 or (strategy.num_replicas_in_sync > 1 and model.jit_compile):
        return True
    return _WAITS in model.__dict__ and not model.jit_compile


def compiles_inside(model: Any) -> bool:
    """Whether a step of several replicas that XLA shall compile is compiled inside each of them."""
    own_loop = type(model)._make_function is not TensorFlowTrainer._make_function
    return not own_loop and workers.can_compile_replicas(model.distribute_strategy)


def make_function(self: Any, step_function: _Step) -> _Step:
    """Replaces ``TensorFlowTrainer._make_function``."""
    keras3_replica_step.correct_optimizer(self)
    if not _corrected(self):
        own: _Step = own_make_function(self, step_function)
        return own
    replica_step = keras3_replica_step.replica_step(self, step_function)
    around = self.jit_compile and not keras3_replica_step.is_compiled_inside(self)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def waiting_step(data: Any) -> Any:
        # Set outside of the step's function, the dependencies would not reach what is inlined from it; set outside of
        # `strategy.run`, they would not reach the replicas, which are traced in threads of their own.
        with tf.control_dependencies([] if self.jit_compile else _tensors(data)):
            return replica_step(data)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def one_step_on_data(data: Any) -> Any:
        outputs = self.distribute_strategy.run(waiting_step, args=(data,))
        return keras3_replica_step.merged(outputs, self.distribute_strategy)

    compiled = _graph(self, one_step_on_data, jit_compile=around)
    one_step = self._autoconvert_optionals(compiled)
    loop = _one_step(one_step) if self.steps_per_execution == 1 else _several_steps(self, one_step)
    traced = _graph(self, loop)

    def function(iterator: Any) -> Any:
        if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            return traced(iterator)
        outputs = None
        for _, data in zip(range(self.steps_per_execution), iterator):  # train_on_batch
            outputs = one_step(data)
        return outputs

    return function


def _graph(model: Any, function: _Step, **arguments: Any) -> Any:
    """A function in a graph of its own, unless the model runs eagerly."""
    return function if model.run_eagerly else tf.function(function, reduce_retracing=True, **arguments)


def _tensors(data: Any) -> list[Any]:
    """The tensors that a batch consists of, of all replicas."""
    return [part for part in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(part)]


def _one_step(one_step: _Step) -> Any:
    """The next batch, and a step with it."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def one_step_on_iterator(iterator: Any) -> Any:
        return one_step(iterator.get_next())

    return one_step_on_iterator


def _several_steps(model: Any, one_step: _Step) -> Any:
    """The first step, and then others for as long as there are data and the call has room."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def several_steps_on_iterator(iterator: Any) -> Any:
        most = model.steps_per_execution
        outputs = one_step(iterator.get_next())

        def goes_on(step: Any, _: Any, batch: Any) -> Any:
            with tf.device("CPU:0"):
                return tf.logical_and(step < most, batch.has_value())

        def next_step(step: Any, _: Any, batch: Any) -> Any:
            done = one_step(batch.get_value())
            # A batch that is fetched and not used would be lost to the next call.
            following = tf.cond(step + 1 < most, iterator.get_next_as_optional, lambda: batch)
            return step + 1, done, following

        start = (tf.constant(1), outputs, iterator.get_next_as_optional())
        return tf.while_loop(goes_on, next_step, start)[1]

    return several_steps_on_iterator
