"""Whether a data set can be read by other processes: TensorFlow sends its graph, and Python functions stay behind."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})
_UNKNOWN = "TensorFlow cannot write its graph down"


def why_not_remote(dataset: Any) -> Optional[str]:
    """Why a data set cannot be read in another process; None where it can.

    Args:
        dataset: A ``tf.data.Dataset``.
    """
    try:
        serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset))
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    except (tf.errors.OpError, ValueError) as error:
        return f"{_UNKNOWN}: {str(error).splitlines()[0]}"
    except Exception as error:
        if type(error).__name__ != "DecodeError":  # of protobuf, which is no dependency to import
            raise
        return f"{_UNKNOWN}: it is too large"
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    if any(node.op in _PYTHON for node in nodes):
        return "it calls a Python function (from_generator, py_function), which exists in this process only"
    return None
