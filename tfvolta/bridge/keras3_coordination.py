"""Keras 3: ``fit``, ``evaluate`` and ``predict`` with workers that a coordinator sends steps to (parameter servers).

Keras 3.15 has nothing for this strategy: every call ends in ``ValueError: To use this dataset, you need to pass this
dataset to ClusterCoordinator.create_per_worker_dataset``. Here a step is a function that the coordinator gives to the
next free worker. Training data come in one of two ways:

- A ``tf.data.Dataset`` of known size is read by each worker for itself, over and over.
- Everything else (arrays, generators, data of unknown size) is read here, once, and each batch travels with its step.
  So are the data of ``evaluate`` and ``predict``, which must see each batch exactly once.

The corrections sit on Keras's classes, for ``fit`` makes its iterator before any callback is called. Models of other
strategies take Keras's own way.

Source: keras/src/backend/tensorflow/trainer.py.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tfvolta.bridge import keras3_served, served_variables
from tfvolta.bridge.base import ServedPart
from tfvolta.bridge.coordinator import explaining
from tfvolta.bridge.keras3_coordinated_function import CoordinatedFunction, CoordinatedPrediction
from tfvolta.bridge.keras3_coordinated_iterator import CoordinatedIterator

_Step = Callable[[Any], Any]


class CoordinationPart:
    """The part of the bridge that concerns parameter servers."""

    def coordinate_fit(self) -> bool:
        return install()

    def served_parts(self, model: Any) -> dict[str, list[ServedPart]]:
        return served_variables.served_parts(model.weights)

    def served_slots(self, model: Any) -> dict[str, list[ServedPart]]:
        optimizer = getattr(model, "optimizer", None)
        return served_variables.served_parts(optimizer.variables if optimizer is not None else ())


def coordinated(model: Any) -> bool:
    """Whether a model trains under a parameter server strategy."""
    return isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy)


def install() -> bool:
    """Corrects Keras's classes; False where they were corrected already."""
    if getattr(keras_trainer.TFEpochIterator, _MARK, False):
        return False
    keras3_served.install()
    keras_trainer.TFEpochIterator = _epoch_iterator(keras_trainer.TFEpochIterator)
    for name, make in (
        ("_make_function", _make_function),
        ("make_predict_function", _make_predict_function),
        ("_maybe_symbolic_build", _symbolic_build),
        ("_get_metrics_result_or_logs", _metrics_result),
    ):
        setattr(TensorFlowTrainer, name, make(getattr(TensorFlowTrainer, name)))
    for name in ("fit", "evaluate", "predict"):
        setattr(TensorFlowTrainer, name, explaining(getattr(TensorFlowTrainer, name)))
    return True


_MARK = "_tfvolta_coordinates"


def _epoch_iterator(own: Any) -> Any:
    """Keras's epoch iterator, or that of a coordinated strategy."""

    def make(*arguments: Any, distribute_strategy: Any = None, **keywords: Any) -> Any:
        if isinstance(distribute_strategy, tf.distribute.ParameterServerStrategy):
            return CoordinatedIterator(*arguments, distribute_strategy=distribute_strategy, **keywords)
        return own(*arguments, distribute_strategy=distribute_strategy, **keywords)

    setattr(make, _MARK, True)
    return make


def _make_function(own: Any) -> Any:
    def make(self: Any, step_function: _Step) -> _Step:
        return CoordinatedFunction(self, step_function) if coordinated(self) else own(self, step_function)

    return make


def _make_predict_function(own: Any) -> Any:
    def make(self: Any, force: bool = False) -> Any:
        if not coordinated(self):
            return own(self, force=force)
        if self.predict_function is None or force:
            self.predict_function = CoordinatedPrediction(self)
        return self.predict_function

    return make


def _symbolic_build(own: Any) -> Any:
    """Builds the model from what its data look like, without taking a batch of them."""

    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if not coordinated(self) or iterator is None:
            own(self, iterator=iterator, data_batch=data_batch)
            return
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=tree.map_structure(_unknown_to_none, iterator.element_spec))

    return build


def _unknown_to_none(spec: Any) -> Any:
    """Data that are left out come as optionals without a value."""
    return None if isinstance(spec, (tf.OptionalSpec, tf.NoneTensorSpec)) else spec


def _metrics_result(own: Any) -> Any:
    """Metrics are read when all that was given out is finished."""

    def result(self: Any, logs: Any) -> Any:
        if coordinated(self):
            tf.distribute.coordinator.ClusterCoordinator(self.distribute_strategy).join()
        return own(self, logs)

    return result
