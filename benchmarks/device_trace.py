"""What TensorFlow's profiler sees of an epoch: copies between GPU and host, and the longest operations."""

from __future__ import annotations

import collections
import glob
from typing import Any

LONGEST = 16


def start(folder: str) -> None:
    """Starts the profiler."""
    import tensorflow as tf

    tf.profiler.experimental.start(folder)


def stop(folder: str, steps: int) -> dict[str, Any]:
    """Stops the profiler; milliseconds of a step, by operation.

    Args:
        folder: As given to ``start``.
        steps: Steps that were traced.

    Returns:
        ``copies_ms``, ``longest_ms`` and ``gpu_ms``, the sum of all operations of the GPU's streams.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    tf.profiler.experimental.stop()
    copies: collections.Counter[str] = collections.Counter()
    longest: collections.Counter[str] = collections.Counter()
    for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
        for plane in space.planes:
            _read(plane, copies, longest)
    each = 1e9 * steps  # picoseconds of all steps to milliseconds of one
    return {
        "gpu_ms": round(sum(longest.values()) / each, 3),
        "copies_ms": {name: round(value / each, 3) for name, value in copies.items()},
        "longest_ms": {name: round(value / each, 3) for name, value in longest.most_common(LONGEST)},
    }


def _read(plane: Any, copies: Any, longest: Any) -> None:
    names = {number: meta.name for number, meta in plane.event_metadata.items()}
    on_gpu = "GPU" in plane.name
    for line in plane.lines:
        if on_gpu and line.name and not line.name.startswith("Stream"):
            continue
        for event in line.events:
            name = names.get(event.metadata_id, "")
            if on_gpu and name.startswith("Memcpy"):
                copies[name] += event.duration_ps
            elif on_gpu:
                longest[f"GPU {name[:90]}"] += event.duration_ps
            elif "TensorScatterUpdate" in name:
                copies["host TensorScatterUpdate"] += event.duration_ps
