"""Parts of TensorFlow that are not public and that knobs need to see what really happened.

Each function names the private part that it uses; ``tests/tensorflow/test_knobs_start.py`` and
``test_knobs_model.py`` fail when TensorFlow changes it. None of them starts the eager context unless it says so.
"""

from __future__ import annotations

import collections
from typing import Any, Mapping, Optional

_PROBE_DEPTH = 6  # more than tf_xla_min_cluster_size (4), so that the probe is worth a cluster


def device_memory_limits() -> dict[str, int]:
    """Memory that the runtime gives each logical device, bytes by name such as ``GPU:0``; empty before the start.

    Source: the device list of the running eager context, which ``tf.compat.v1.Session.list_devices`` prints too.
    """
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session as listing
    from tensorflow.python.eager import context

    current = context.context()
    if not current._initialized:
        return {}
    devices = pywrap_tfe.TFE_ContextListDevices(current._context_handle)
    try:
        return {
            str(listing.TF_DeviceListName(devices, index)).rsplit("device:", 1)[-1]: int(
                listing.TF_DeviceListMemoryBytes(devices, index)
            )
            for index in range(listing.TF_DeviceListCount(devices))
        }
    finally:
        listing.TF_DeleteDeviceList(devices)


def forget_logical_devices(device: Any) -> None:
    """Takes back a physical device's logical configuration before the start; TensorFlow's own call cannot unset it.

    A configuration of one device without a limit is no replacement: memory growth is then refused.
    """
    from tensorflow.python.eager import context

    context.context()._virtual_device_map.pop(device, None)


def runtime_options() -> dict[str, Any]:
    """What the eager context hands, or handed, to the runtime at its start: threads and ``allow_growth``."""
    from tensorflow.python.eager import context

    config = context.context().config
    return {
        "inter_op_threads": int(config.inter_op_parallelism_threads),
        "intra_op_threads": int(config.intra_op_parallelism_threads),
        "allow_growth": bool(config.gpu_options.allow_growth),
    }


def global_seed() -> Optional[int]:
    """The seed that ``tf.random.set_seed`` set; None where none was set."""
    from tensorflow.python.eager import context

    seed = context.global_seed()
    return None if seed is None else int(seed)


def op_determinism() -> bool:
    """Whether TensorFlow's kernels ask for deterministic results."""
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def set_op_determinism(value: bool) -> None:
    """Turns deterministic operations on or off; there is no public way to turn them off again."""
    from tensorflow.python.framework import config

    if value:
        config.enable_op_determinism()
    else:
        config.disable_op_determinism()


def optimized_operations(function: Any, *arguments: Any) -> Mapping[str, int]:
    """Runs a fresh ``tf.function`` once and counts the operations that are left after graph optimisation.

    Starts the eager context. An operation of a cluster that XLA compiles shows as ``_XlaCompile``;
    names that grappler's layout pass gives are counted under ``layout:`` and the operation, as in ``layout:Transpose``.
    """
    from tensorflow.python.eager import context

    counts: collections.Counter[str] = collections.Counter()
    with context.collect_graphs(optimized=True) as graphs:
        function(*arguments)
    for graph in graphs:
        for node in graph.node:
            counts[node.op] += 1
            if "LayoutOptimizer" in node.name:
                counts[f"layout:{node.op}"] += 1
    return dict(counts)


def clusters_in_probe(device: str) -> int:
    """How many XLA clusters auto-clustering makes of a small chain of element-wise operations on a device.

    Starts the eager context and, where clustering works, compiles the probe (some tenths of a second).
    """
    import tensorflow as tf

    @tf.function(jit_compile=False)  # type: ignore[untyped-decorator, unused-ignore]
    def chain(x: Any) -> Any:
        for _ in range(_PROBE_DEPTH):
            x = tf.tanh(x) * 1.5 + 0.1
        return x

    with tf.device(device):
        return optimized_operations(chain, tf.ones((8, 8))).get("_XlaCompile", 0)


def layout_changes_in_probe(device: str) -> int:
    """How many nodes grappler's layout pass adds to one float32 convolution in NHWC on a GPU.

    Starts the eager context; runs one small convolution, so cuDNN starts too.
    """
    import tensorflow as tf

    @tf.function(jit_compile=False)  # type: ignore[untyped-decorator, unused-ignore]
    def convolve(x: Any, kernel: Any) -> Any:
        return tf.nn.relu(tf.nn.conv2d(x, kernel, strides=1, padding="SAME"))

    with tf.device(device):
        counts = optimized_operations(convolve, tf.ones((8, 16, 16, 8)), tf.ones((3, 3, 8, 8)))
    return sum(number for name, number in counts.items() if name.startswith("layout:"))


def tf32_rounds(device: str) -> bool:
    """Whether a float32 matrix product on a GPU loses the bits that TensorFloat-32 does not have.

    The products of 1 + 2**-12 and 1 are exact in float32; TensorFloat-32 keeps 10 bits of the
    fraction and rounds them to 1.
    """
    import tensorflow as tf

    size = 256
    with tf.device(device):
        product = tf.linalg.matmul(tf.fill((size, size), 1.0 + 2.0**-12), tf.ones((size, size)))
    return bool(tf.reduce_all(product == float(size)).numpy())


def in_xla_context() -> bool:
    """Whether what is traced now lies in a function that XLA has to compile (``jit_compile=True``)."""
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import control_flow_util

    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))
