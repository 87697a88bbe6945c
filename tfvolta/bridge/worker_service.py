"""Makes a Keras ready for a strategy of several replicas or workers, before there is a model."""

from __future__ import annotations

import os
import sys

from tfvolta.cluster import resolve
from tfvolta.errors import ClusterError


def serve_workers(stack: str) -> bool:
    """Corrects what the Keras of a stack cannot do with several replicas; False where there is nothing to correct.

    Keras 2 and tf_keras train with several workers as they are. Keras 3 does not, nor with replicas that get different
    numbers of rows, and fails in ``fit`` before a callback is called, so that its classes are corrected; with one
    replica they do what they did.
    """
    if stack != "keras3":
        return False
    from tfvolta.bridge import keras3_workers

    return keras3_workers.install()


def serve_present_workers() -> bool:
    """The same for a script that makes its own strategy, where the environment names other workers.

    ``fit`` of Keras 3 would fail before it gives a callback the model, so that making the callback is the last moment.
    """
    keras = sys.modules.get("keras")
    if not str(getattr(keras, "__version__", "")).startswith("3."):
        return False
    try:
        cluster = resolve(os.environ)
    except ClusterError:
        return False
    if cluster is None or cluster.has_parameter_servers:  # these workers train for a coordinator, each by itself
        return False
    return cluster.num_workers > 1 and serve_workers("keras3")
