"""A TensorFlow server that takes part in a cluster, with the device settings of this process."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import tensorflow as tf
from tensorflow.python.eager import context


def start_server(addresses: Mapping[str, Sequence[str]], job: str, index: int) -> Any:
    """Starts the server of one task; it serves until the process ends.

    ``tf.distribute.Server`` makes its devices from a ConfigProto and knows nothing of what ``tf.config`` was told about
    memory growth, visible devices and threads. The eager context, which is not started here, keeps it in that form.

    A parameter server takes no GPU: variables lie in its main memory, and the memory of a GPU on its machine is a
    worker's.

    Args:
        addresses: ``host:port`` of every task, by job.
        job: ``worker`` or ``ps``.
        index: Number of this task in its job.

    Raises:
        tf.errors.OpError: It cannot listen at its address.
    """
    if job == "ps":
        tf.config.set_visible_devices([], "GPU")
    cluster = tf.train.ClusterSpec({name: list(tasks) for name, tasks in addresses.items()})
    return tf.distribute.Server(
        cluster, job_name=job, task_index=index, protocol="grpc", config=context.context().config, start=True
    )
