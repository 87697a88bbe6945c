"""Keras 3: ``fit``, ``evaluate`` and ``predict`` under a strategy of several workers, which plain Keras 3.15 lacks.

``fit`` and ``evaluate`` first build the model from a batch, which they reduce over all replicas as a structure; a
strategy of several workers reduces single values only, and every call ends in ``ValueError: Attempt to convert a value
(PerReplica...``. That happens before any callback is called, so the corrections sit on Keras's classes. They do nothing
under other strategies.

Source: keras/src/backend/tensorflow/trainer.py, ``_maybe_symbolic_build``; keras-team/keras#20585.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tfvolta.bridge import keras3_step_loop, keras3_worker_files, workers

_own_symbolic_build = TensorFlowTrainer._maybe_symbolic_build


def install() -> bool:
    """Corrects Keras's classes; False where they were corrected already."""
    if TensorFlowTrainer._maybe_symbolic_build is _symbolic_build:
        return False
    TensorFlowTrainer._maybe_symbolic_build = _symbolic_build
    TensorFlowTrainer._make_function = _make_function
    keras3_worker_files.install()
    return True


def _symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from one replica's share of a batch."""
    if iterator is None or self.distribute_strategy.num_replicas_in_sync < 2:
        _own_symbolic_build(self, iterator=iterator, data_batch=data_batch)
        return
    strategy = self.distribute_strategy
    for _, _, batches in iterator:
        shares = next(batches)
        data_batch = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], shares)
        break
    with strategy.scope():
        self._symbolic_build(data_batch=data_batch)


def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The corrected loop for models that train with several workers, whether or not a callback of tfvolta is there."""
    several = workers.spans_workers(self.distribute_strategy)
    make = keras3_step_loop.make_function if several else keras3_step_loop.own_make_function
    function: Callable[[Any], Any] = make(self, step_function)
    return function
