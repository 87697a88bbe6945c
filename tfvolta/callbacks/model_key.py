"""What two runs must have in common for the times of their steps to be comparable."""

from __future__ import annotations

import hashlib
from typing import Any

from tfvolta.bridge.base import Bridge


def model_key(bridge: Bridge, model: Any) -> str:
    """A digest of a model's architecture, precision, batch and steps in a call, and of the stack and its devices.

    Args:
        bridge: The bridge of the model's Keras.
        model: A built model in a fit.
    """
    import tensorflow as tf

    data = bridge.fit_data(model)
    devices = [
        tf.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in tf.config.get_visible_devices()
    ]
    parts = (
        bridge.stack,
        tf.__version__,
        devices,
        [type(layer).__name__ for _, layer in bridge.layers(model)],
        sorted(bridge.compute_dtypes(model).values()),
        [(tuple(weight.shape), str(weight.dtype)) for weight in model.weights],
        None if data is None else data.batch,
        bridge.steps_per_execution(model),
        int(getattr(model.distribute_strategy, "num_replicas_in_sync", 1)),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
