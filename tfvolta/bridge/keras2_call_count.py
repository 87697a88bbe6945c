"""Keras 2: how many steps a call of the train function has is known to the host.

The train function loops over ``tf.range`` of an int64 variable. On a GPU its counter and its comparison are int64 too,
for which TensorFlow has kernels there: between two steps the host waits for the device to say whether the loop goes on,
and never runs ahead of it. An int32 stays on the host, by TensorFlow's own rule.

Source: tf_keras/src/engine/training.py, ``make_train_function``; tensorflow/core/kernels/cwise_op_less.cc (int32 on a
GPU is compared in host memory).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class HostCount:
    """Stands in for a model's ``_steps_per_execution``; everything but the loop uses the variable itself."""

    def __init__(self, variable: Any):
        """Takes the place of a variable.

        Args:
            variable: An int64 variable; what is assigned to it arrives here too, wherever it is held.
        """
        self.variable = variable
        assign = variable.assign
        with tf.init_scope(), tf.device("CPU:0"):
            self._here = tf.Variable(int(variable.numpy()), dtype=tf.int32, trainable=False, name="steps_of_a_call")

        def assign_both(value: Any, *args: Any, **kwargs: Any) -> Any:
            self._here.assign(tf.cast(value, tf.int32))
            return assign(value, *args, **kwargs)

        variable.assign = assign_both

    def __getattr__(self, name: str) -> Any:
        if name == "variable":  # while it is copied, before it has one
            raise AttributeError(name)
        return getattr(self.variable, name)

    def __sub__(self, other: Any) -> Any:
        return self.tensor() - other  # the loop of predict begins behind its first step

    def tensor(self) -> Any:
        """The number of steps, in host memory."""
        with tf.device("CPU:0"):
            return self._here.read_value()


def _convert(count: HostCount, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    tensor = count.tensor()
    return tensor if dtype is None else tf.cast(tensor, dtype)


tf.register_tensor_conversion_function(HostCount, _convert)


def install(model: Any) -> bool:
    """Lets a model count the steps of a call on the host; False where it does, or where a coordinator counts them."""
    present = model.__dict__.get("_steps_per_execution")
    if present is None or isinstance(present, HostCount) or model._cluster_coordinator is not None:
        return False
    if int(present.numpy()) == 1 or model.distribute_strategy.num_replicas_in_sync > 1:
        return False
    model.__dict__["_steps_per_execution"] = HostCount(present)
    return True
