"""What TensorFlow's profiler sees of an epoch: copies, the longest operations, and where the GPU has nothing to do."""

from __future__ import annotations

import collections
import glob
from typing import Any

LONGEST = 16
# Between two kernels that follow each other at once the GPU idles for a microsecond or two.
SHORT_PS = 20_000_000


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
        ``copies_ms``, ``longest_ms``, ``gpu_ms``, the sum of all operations of the GPU's streams, and ``idle_ms``: the
        time between operations by what stands before and behind it, with all gaps under 20 us as ``short``.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    tf.profiler.experimental.stop()
    copies: collections.Counter[str] = collections.Counter()
    longest: collections.Counter[str] = collections.Counter()
    spans: list[tuple[int, int, str]] = []
    for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
        for plane in space.planes:
            _read(plane, copies, longest, spans)
    each = 1e9 * steps  # picoseconds of all steps to milliseconds of one
    return {
        "gpu_ms": round(sum(longest.values()) / each, 3),
        "copies_ms": {name: round(value / each, 3) for name, value in copies.items()},
        "longest_ms": {name: round(value / each, 3) for name, value in longest.most_common(LONGEST)},
        "idle_ms": {name: round(value / each, 3) for name, value in idle(spans).most_common(LONGEST)},
    }


def idle(spans: list[tuple[int, int, str]]) -> collections.Counter[str]:
    """Picoseconds in which nothing runs, by the operations around them.

    Args:
        spans: Beginning and end in picoseconds, and name, of each operation on any stream.
    """
    found: collections.Counter[str] = collections.Counter()
    last, before = 0, ""
    for begin, end, name in sorted(spans):
        if before and begin > last:
            gap = begin - last
            found["short" if gap < SHORT_PS else f"{before[:40]} -> {name[:40]}"] += gap
        if end > last:
            last, before = end, name
    return found


def _read(plane: Any, copies: Any, longest: Any, spans: list[tuple[int, int, str]]) -> None:
    names = {number: meta.name for number, meta in plane.event_metadata.items()}
    on_gpu = "GPU" in plane.name
    for line in plane.lines:
        if on_gpu and line.name and not line.name.startswith("Stream"):
            continue
        for event in line.events:
            name = names.get(event.metadata_id, "")
            if on_gpu:
                begin = line.timestamp_ns * 1000 + event.offset_ps
                spans.append((begin, begin + event.duration_ps, name))
            if on_gpu and name.startswith("Memcpy"):
                copies[name] += event.duration_ps
            elif on_gpu:
                longest[f"GPU {name[:90]}"] += event.duration_ps
            elif "TensorScatterUpdate" in name:
                copies["host TensorScatterUpdate"] += event.duration_ps
