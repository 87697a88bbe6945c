"""What TensorFlow's allocators say about the memory of each GPU; None and a reason where they say nothing."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.runtime import own_devices
from tfvolta.bridge.tensorflow_private import device_memory_limits


def gpu_figures() -> dict[str, Optional[dict[str, Any]]]:
    """Memory of each GPU of this process in bytes: in use, at the peak, and what the allocator may have.

    Returns:
        By device, such as ``GPU:0``; None for one whose allocator keeps no statistics.
    """
    limits = device_memory_limits()
    found: dict[str, Optional[dict[str, Any]]] = {}
    for device in own_devices(tf.config.list_logical_devices("GPU")):
        name = device.name.split("device:", 1)[1]
        found[name] = _figures(name, limits.get(name))
    return found


def _figures(name: str, limit_bytes: Optional[int]) -> Optional[dict[str, Any]]:
    try:
        info = tf.config.experimental.get_memory_info(name)
    except Exception:  # the allocator decides what it raises
        return None
    if not info["peak"]:
        return None
    return {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"]), "limit_bytes": limit_bytes}
