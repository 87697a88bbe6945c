"""The callbacks of TensorFlow Addons that a config asks for."""

from __future__ import annotations

from typing import Any, Mapping


def addon_callbacks(asked: Mapping[str, Any]) -> list[Any]:
    """Makes the callbacks of a config's ``addons`` section, in the order in which they belong in the list.

    Args:
        asked: The section; absent keys make nothing.

    Raises:
        ImportError: TensorFlow Addons is not installed; the plan has refused every stack but keras2 by then.
    """
    import tensorflow_addons as tfa

    made: list[Any] = []
    if asked.get("average_checkpoint"):
        made.append(tfa.callbacks.AverageModelCheckpoint(False, asked["average_checkpoint"], save_weights_only=True))
    if asked.get("time_limit_seconds"):
        made.append(tfa.callbacks.TimeStopping(seconds=asked["time_limit_seconds"], verbose=1))
    if asked.get("progress_bar"):
        made.append(tfa.callbacks.TQDMProgressBar())
    return made
