"""Keras 3: what the ``fit`` that is calling a callback right now knows of its data.

``fit`` makes its epoch iterator before it makes the list of callbacks and keeps it in a local variable. Nothing else
tells a callback what a model that is not built yet will be called with, or how many batches an epoch has.
Source: keras/src/backend/tensorflow/trainer.py, ``TensorFlowTrainer.fit``.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import keras
import tensorflow as tf
from keras.src import tree

_LOCAL = "epoch_iterator"


def epoch_iterator(model: Any) -> Optional[Any]:
    """The epoch iterator of the running ``fit`` of a model, or None outside one."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return frame.f_locals.get(_LOCAL)
        frame = frame.f_back
    return None


def batches(model: Any) -> Optional[int]:
    """Batches an epoch, or None where there is no fit or it does not know."""
    number = getattr(epoch_iterator(model), "num_batches", None)
    return None if number is None else int(number)


def input_spec(model: Any) -> Optional[Any]:
    """What the model will be called with, as KerasTensors, or None where there is no fit or a strategy splits it."""
    dataset = getattr(epoch_iterator(model), "_distributed_dataset", None)
    if not isinstance(dataset, tf.data.Dataset):
        return None
    inputs = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)[0]
    specs = tree.flatten(inputs)
    if not specs or not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in specs):
        return None
    return tree.map_structure(lambda spec: keras.KerasTensor((None, *spec.shape[1:]), dtype=spec.dtype.name), inputs)
