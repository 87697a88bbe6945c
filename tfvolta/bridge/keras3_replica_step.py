"""Keras 3: what one replica does in a train or test step, and what the replicas' logs become.

A step compiled by XLA is compiled inside each replica: ``strategy.run`` then calls one compiled function a replica,
TensorFlow merges nothing in between, and gradients are added up by collectives in the compiled step itself.

Source: tensorflow/python/distribute/mirrored_run.py, ``call_for_each_replica``; ``mirrored_strategy.py``,
``_use_merge_call``.
"""

from __future__ import annotations

from typing import Any, Callable

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import reduce_per_replica

from tfvolta.bridge import keras3_guard, keras3_replicas, workers

_Step = Callable[[Any], Any]


def correct_optimizer(model: Any) -> bool:
    """Corrects the optimiser of a model that trains on several replicas; False where nothing had to be done."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or model.distribute_strategy.num_replicas_in_sync == 1:
        return False
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return keras3_guard.install(optimizer)
    return keras3_replicas.install(optimizer)


def is_compiled_inside(model: Any) -> bool:
    """Whether XLA compiles each replica's step by itself, and not the step of all of them together."""
    return bool(model.jit_compile and not model.run_eagerly) and workers.can_compile_replicas(model.distribute_strategy)


def replica_step(model: Any, step_function: _Step) -> _Step:
    """The step as each replica runs it.

    Args:
        model: A compiled model.
        step_function: Its ``train_step`` or ``test_step``.
    """
    strategy = model.distribute_strategy
    step = _with_averaged_logs(step_function) if workers.spans_workers(strategy) else step_function
    if not is_compiled_inside(model):
        return step
    compiled = _compiled(step)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compiled_step(data: Any) -> Any:
        return compiled(data)

    return compiled_step  # type: ignore[no-any-return]


def _compiled(step: _Step) -> Any:
    return tf.function(step, autograph=False, reduce_retracing=True, jit_compile=True)


def merged(outputs: Any, strategy: Any) -> Any:
    """One value for each log of a step: the mean over the replicas."""
    if workers.spans_workers(strategy):  # averaged already, and the same everywhere
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], outputs)
    return reduce_per_replica(outputs, strategy, reduction="auto")


def _with_averaged_logs(step_function: _Step) -> _Step:
    """A step whose logs are means over all replicas, in one exchange for all of them."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def step(data: Any) -> Any:
        outputs = step_function(data)
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(outputs)]
        floats = [tf.cast(value, tf.float32) for value in flat]
        means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, floats) if floats else []
        return tf.nest.pack_sequence_as(outputs, [tf.cast(mean, value.dtype) for mean, value in zip(means, flat)])

    return step  # type: ignore[no-any-return]
