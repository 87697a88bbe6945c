"""Keras 2: how many steps a call of the train function has is known to the host.

The train function loops over ``tf.range`` of an int64 variable. On a GPU its counter and its comparison are int64 too,
for which TensorFlow has kernels there: between two steps the host waits for the device to say whether the loop goes on,
and never runs ahead of it. An int32 stays on the host, by TensorFlow's own rule. So the variable stays Keras's own, and
where it becomes a tensor, as in ``tf.range``, it is an int32 that is read from host memory.

Source: tf_keras/src/engine/training.py, ``make_train_function``; tensorflow/core/kernels/cwise_op_less.cc (int32 on a
GPU is compared in host memory); tensorflow/python/ops/resource_variable_ops.py, ``_dense_var_to_tensor``.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_CONVERSION = "_dense_var_to_tensor"


def install(model: Any) -> bool:
    """Lets a model count the steps of a call on the host; False where it does, or where a coordinator counts them."""
    variable = model.__dict__.get("_steps_per_execution")
    if not isinstance(variable, tf.Variable) or model._cluster_coordinator is not None:
        return False
    if is_on_host(variable) or int(variable.numpy()) == 1 or model.distribute_strategy.num_replicas_in_sync > 1:
        return False
    _keep_on_host(variable)
    return True


def is_on_host(variable: Any) -> bool:
    """Whether a variable of steps becomes a tensor in host memory."""
    return _CONVERSION in vars(variable)


def _keep_on_host(variable: Any) -> None:
    """Gives a variable a copy in host memory that follows it, for where it becomes a tensor."""
    assign = variable.assign
    with tf.init_scope(), tf.device("CPU:0"):
        here = tf.Variable(int(variable.numpy()), dtype=tf.int32, trainable=False, name="steps_of_a_call")

    def assign_both(value: Any, *args: Any, **kwargs: Any) -> Any:
        here.assign(tf.cast(value, tf.int32))
        return assign(value, *args, **kwargs)

    def convert(dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
        with tf.device("CPU:0"):
            steps = here.read_value()
            return steps if dtype is None else tf.cast(steps, dtype)

    vars(variable)["assign"] = assign_both
    vars(variable)[_CONVERSION] = convert
