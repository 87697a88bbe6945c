"""What the running ``fit`` iterates, and putting something else in its place before it does, for every Keras.

``epoch_iterator`` of Keras 3 and ``data_handler`` of Keras 2 keep the data set from which each epoch makes its
iterator; set in ``on_train_begin``, another one with the same element spec is iterated instead, and nothing is traced
anew.
Source: keras/src/backend/tensorflow/trainer.py of Keras 3.15; keras/src/engine/data_adapter.py of Keras 2.15;
tensorflow/python/distribute/input_lib.py, the same in TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from tfvolta.bridge import pipeline, running_fit

_ORIGINAL = "_original_dataset"  # of a data set that a strategy distributes
_HOLDERS = (("epoch_iterator", "_distributed_dataset", "data_adapter"), ("data_handler", "_dataset", "_adapter"))
_KINDS = {"KerasSequenceAdapter": "sequence", "PyDatasetAdapter": "sequence", "GeneratorDataAdapter": "generator"}


class FitInput:
    """The data set of a running ``fit``.

    Attributes:
        dataset: The ``tf.data.Dataset`` that the script or Keras made, before it is distributed or copied to a device.
        ahead: Whether that fetches batches in threads of its own, ahead of the train function.
        has_gpu: Whether TensorFlow has a GPU.
        kind: What fit was given: ``sequence`` (of Keras), ``generator`` or ``other``.
    """

    def __init__(self, holder: Any, name: str, adapter: Any, strategy: Any):
        self._holder, self._name = holder, name
        self.kind = _KINDS.get(type(adapter).__name__, "other")
        self._held = getattr(holder, name)
        self._put = self._held
        self._finish: Callable[[Any], Any] = lambda dataset: dataset
        self.dataset = self._held
        if not isinstance(self._held, tf.data.Dataset):
            self.dataset, self._finish = getattr(self._held, _ORIGINAL), strategy.experimental_distribute_dataset
        elif (copies := pipeline.copy_to_device(self._held)) is not None:
            self.dataset, self._finish = copies
        self.has_gpu = bool(tf.config.list_logical_devices("GPU"))
        self.ahead = self.dataset is not self._held

    def replace(self, dataset: Any) -> None:
        """Has iterators made from another data set from now on."""
        self._put = self._finish(dataset)
        setattr(self._holder, self._name, self._put)

    def restore(self) -> None:
        """Has iterators made from the former data set again, unless somebody else has put another in its place."""
        if getattr(self._holder, self._name) is self._put:
            setattr(self._holder, self._name, self._held)


def of_fit(model: Any) -> tuple[Optional[FitInput], str]:
    """The data set of the running ``fit`` of a model, or why it cannot be replaced.

    Args:
        model: The model that is trained; to be asked in ``on_train_begin``.
    """
    variables = running_fit.local_variables(model) or {}
    found = [(variables[key], name, adapter) for key, name, adapter in _HOLDERS if key in variables]
    if not found:
        return None, "no fit is running that keeps its data where Keras does"
    holder, name, adapter = found[0]
    reason = _obstacle(model.distribute_strategy, getattr(holder, name, None))
    if reason:
        return None, reason
    return FitInput(holder, name, getattr(holder, adapter, None), model.distribute_strategy), ""


def callbacks(model: Any) -> list[Any]:
    """The callbacks of the running ``fit``."""
    return running_fit.callbacks(model)


def given(model: Any) -> tuple[Optional[Any], str]:
    """The data set that the script or Keras made for the running ``fit``, and its kind as in ``FitInput``."""
    variables = running_fit.local_variables(model) or {}
    for key, name, adapter in _HOLDERS:
        if key in variables:
            kept = getattr(variables[key], adapter, None)
            held = getattr(variables[key], name, None)
            own = getattr(kept, "_dataset", None)  # while another one is iterated in its place
            found = own if isinstance(own, tf.data.Dataset) else getattr(held, _ORIGINAL, held)
            kind = _KINDS.get(type(kept).__name__, "other")
            return (found if isinstance(found, tf.data.Dataset) else None), kind
    return None, ""


def _obstacle(strategy: Any, held: Any) -> str:
    """Why the data of a fit are not to be touched; empty where they may be."""
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "the workers of parameter servers read their data themselves"
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "TensorFlow divides the pipeline between the workers by rewriting it"
    datasets = (held, getattr(held, _ORIGINAL, None))
    if not any(isinstance(each, tf.data.Dataset) for each in datasets):
        return f"the script distributes its data itself ({type(held).__name__})"
    return ""
