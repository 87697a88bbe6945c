"""Compiles one function in a process of its own, which can be ended; run by ``tfvolta.bridge.xla_limit``.

The function comes with the functions that it calls, in TensorFlow's own form. Its arguments and variables are made
anew, full of zeros: XLA compiles by shapes. Prints ``ready`` when compiling begins, and ``done`` when it has ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import context, execute


def main(folder: str) -> None:
    """Compiles what a folder holds.

    Args:
        folder: With ``functions.pb`` and ``call.json``.
    """
    call = json.loads((Path(folder) / "call.json").read_text(encoding="utf-8"))
    library = function_pb2.FunctionDefLibrary()
    library.ParseFromString((Path(folder) / "functions.pb").read_bytes())
    known = context.context()
    known.ensure_initialized()
    for definition in library.function:
        known.add_function_def(definition)
    with tf.device(call["device"]):
        inputs = [_made(each) for each in call["inputs"]]
        print("ready", flush=True)
        execute.execute(
            call["name"].encode(),
            call["outputs"],
            [each.handle if isinstance(each, tf.Variable) else each for each in inputs],
            attrs=("executor_type", "", "config_proto", known.function_call_options.config_proto_serialized),
            ctx=known,
        )
    context.async_wait()
    print("done", flush=True)


def _made(part: dict[str, Any]) -> Any:
    zeros = tf.zeros(part["shape"], tf.dtypes.as_dtype(part["dtype"]))
    return tf.Variable(zeros, trainable=False) if part["variable"] else zeros


if __name__ == "__main__":
    main(sys.argv[1])
