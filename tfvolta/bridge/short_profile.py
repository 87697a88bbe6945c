"""A profile of a moment, taken with TensorFlow's own profiler and read from a folder that is gone afterwards.

It asks for no trace of the device, so that CUPTI is not started. TensorFlow 2.21 takes every option for a truth value
and ignores it, with a warning for each, so there it is not asked, and CUPTI starts once in a process.
Source: ``SetOption`` in xla/tsl/profiler/utils/session_manager.cc; profiler_wrapper.cc in
tensorflow/python/profiler/internal.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.profiler import profiler_v2

# Level 2 has the events of allocators; operations of the step are not running while it is taken.
_LEVELS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0, "delay_ms": 0}
_IGNORES_OPTIONS = (2, 21)


class ProfilerBusyError(Exception):
    """Somebody else is taking a profile."""


def short_profile(action: Callable[[], None]) -> bytes:
    """The serialized ``XSpace`` of a profile of an action.

    Raises:
        ProfilerBusyError: Another profile is being taken, which this one leaves alone.
    """
    if profiler_v2._profiler is not None:
        raise ProfilerBusyError("another profile is being taken")
    with tempfile.TemporaryDirectory(prefix="tfvolta-profile-") as folder:
        try:
            tf.profiler.experimental.start(folder, options=_options())
        except tf.errors.AlreadyExistsError as error:
            profiler_v2._profiler = None  # TensorFlow leaves its own there, which was never started
            raise ProfilerBusyError("another profile is being taken") from error
        try:
            action()
        finally:
            tf.profiler.experimental.stop()
        return b"".join(path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*.xplane.pb")))


def _options() -> Any:
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    return None if version >= _IGNORES_OPTIONS else tf.profiler.experimental.ProfilerOptions(**_LEVELS)
