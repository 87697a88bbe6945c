"""One call from the process that coordinates a cluster to a function of a process that only serves.

TensorFlow executes ``py_function`` where the operation is placed, and looks the function up in a registry of that
process. A serving process enters a function of its own under a name known to both; the coordinator runs the operation
``PyFunc`` with that name on its device. It is the only way that needs no second port.

Source: tensorflow/python/ops/script_ops.py, ``FuncRegistry``; tensorflow/python/lib/core/py_func.cc.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.ops import script_ops


class Answering:
    """Lets a function of this process be called by name; gone when the object is.

    Args:
        name: Known to both sides.
        function: Takes and returns a text; called from a thread of TensorFlow's.
    """

    def __init__(self, name: str, function: Callable[[str], str]) -> None:
        def answer(text: Any) -> bytes:
            given = text.item() if hasattr(text, "item") else text
            return function(given.decode() if isinstance(given, bytes) else str(given)).encode()

        self._name = name
        self._function = answer  # the registry holds it weakly
        script_ops._py_funcs._funcs[name] = answer

    def close(self) -> None:
        """Takes the function out again."""
        script_ops._py_funcs.remove(self._name)


def call(device: str, name: str, text: str) -> str:
    """Calls a function of the process that owns a device, and waits for its answer.

    Args:
        device: Such as ``/job:ps/task:1/device:CPU:0``.
        name: The name that the other process gave to ``Answering``.
        text: What it is given.

    Raises:
        tf.errors.OpError: The process is gone, or answers to no such name.
    """
    with tf.device(device):
        (answer,) = tf.raw_ops.PyFunc(input=[tf.constant(text)], token=name, Tout=[tf.string])
    with tf.device("/device:CPU:0"):
        return str(tf.identity(answer).numpy().decode())
