"""What the ``fit`` that is calling a callback right now knows of its data, for every Keras.

``fit`` keeps its data in a local variable, ``epoch_iterator`` in Keras 3 and ``data_handler`` in Keras 2; nothing else
tells a callback how many rows there are and how they are batched.
Source: keras/src/backend/tensorflow/trainer.py of Keras 3; keras/src/engine/training.py of Keras 2.15.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge import dataset_files, datasets
from tfvolta.bridge.base import FitData


def fit_data(model: Any) -> Optional[FitData]:
    """Rows and batches of the running ``fit`` of a model; None outside one."""
    variables = local_variables(model) or {}
    adapter = _adapter(variables)
    return None if adapter is None else _described(adapter, variables.get("steps_per_epoch"))


def runs_out(model: Any) -> bool:
    """Whether the running ``fit`` of a model finds the end of its data only by running into it."""
    variables = local_variables(model) or {}
    if "epoch_iterator" in variables:
        return getattr(variables["epoch_iterator"], "num_batches", None) is None
    return "data_handler" in variables and getattr(variables["data_handler"], "inferred_steps", None) is None


def local_variables(model: Any) -> Optional[Any]:
    """Local variables of the running ``fit`` of a model; None outside one."""
    frame = _fit_frame(model, sys._getframe(1))
    return None if frame is None else frame.f_locals


def callbacks(model: Any) -> list[Any]:
    """The callbacks of the running ``fit`` of a model."""
    return list(getattr((local_variables(model) or {}).get("callbacks"), "callbacks", ()))


def add_callback(model: Any, callback: Any) -> bool:
    """Puts a callback behind all others of the running ``fit`` of a model; False outside one."""
    held = getattr((local_variables(model) or {}).get("callbacks"), "callbacks", None)
    if not isinstance(held, list):
        return False
    held.append(callback)
    return True


def is_inside(model: Any, frame: Any) -> bool:
    """Whether a Python frame lies inside the running ``fit`` of a model."""
    return _fit_frame(model, frame) is not None


def _fit_frame(model: Any, frame: Any) -> Optional[Any]:
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def data_policy(model: Any) -> Optional[str]:
    """See ``tfvolta.bridge.base.Bridge.data_policy``; Keras divides arrays by rows."""
    adapter = _adapter(local_variables(model) or {})
    if adapter is None:
        return None
    if holds_arrays(adapter):
        return "data"
    dataset = getattr(adapter, "_dataset", None)
    return dataset_files.policy(dataset) if isinstance(dataset, tf.data.Dataset) else ""


def _adapter(variables: Any) -> Optional[Any]:
    for name, attribute in (("epoch_iterator", "data_adapter"), ("data_handler", "_adapter")):
        if name in variables:
            return getattr(variables[name], attribute, None)
    return None


def _described(adapter: Any, steps_per_epoch: Optional[int]) -> FitData:
    dataset = getattr(adapter, "_dataset", None)
    if holds_arrays(adapter):
        batch = _called(adapter, "batch_size")
        size, partial = _rows(adapter, batch), _called(adapter, "partial_batch_size") or 0
        return _limited(FitData("arrays", batch, size, partial), steps_per_epoch)
    if not isinstance(dataset, tf.data.Dataset):
        return FitData(type(dataset).__name__ if dataset is not None else type(adapter).__name__)
    static = datasets.static_batch(dataset.element_spec)
    if static is not None:
        return FitData("dataset", static, None, 0)
    found = datasets.batching(dataset)
    if found is None:
        return FitData("dataset")
    return _limited(FitData("dataset", found.batch, found.rows, found.remainder), steps_per_epoch)


def holds_arrays(adapter: Any) -> bool:
    return type(adapter).__name__ in (
        "ArrayDataAdapter",
        "TensorLikeDataAdapter",
        "GenericArrayLikeDataAdapter",
        "CompositeTensorDataAdapter",
        "ListsOfScalarsDataAdapter",
    )


def _called(adapter: Any, name: str) -> Optional[int]:
    """A figure of an adapter: a property in Keras 3, a method in Keras 2."""
    value = getattr(adapter, name, None)
    value = value() if callable(value) else value
    return None if value is None else int(value)


def _rows(adapter: Any, batch: Optional[int]) -> Optional[int]:
    if batch is None:
        return None
    size = adapter.get_size() if hasattr(adapter, "get_size") else adapter.num_batches
    partial = _called(adapter, "partial_batch_size") or 0
    return None if size is None else int(size) * batch - ((batch - partial) if partial else 0)


def _limited(data: FitData, steps_per_epoch: Optional[int]) -> FitData:
    """Takes into account that ``steps_per_epoch`` may end an epoch before the smaller batch."""
    if steps_per_epoch and data.batch and data.rows is not None and steps_per_epoch * data.batch <= data.rows:
        return FitData(data.kind, data.batch, data.rows, 0)
    return data
