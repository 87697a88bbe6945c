"""Keras callbacks that time epochs: alone, and in turns with other processes."""

from __future__ import annotations

import tempfile
import time
from typing import Any, Callable, Optional

from benchmarks import device_trace
from benchmarks.baton import PROFILE, STOP, Baton


def make_clock(keras: Any) -> Any:
    """A callback with the wall seconds of each epoch; at the end of one, the device is waited for."""
    return _clock_class(keras)()


def make_turn_clock(
    keras: Any, baton: Baton, row: dict[str, Any], facts: Callable[[Any], dict[str, Any]], peak: Callable[[], Any]
) -> Any:
    """A clock whose first epoch is warm-up and whose later ones each wait for their turn.

    Args:
        keras: The Keras that trains.
        baton: The driver's side.
        row: ``examples`` and ``steps`` of an epoch.
        facts: What to say of the model once it is warm.
        peak: Peak of the device's memory so far.
    """

    class TurnClock(_clock_class(keras)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.word: Optional[str] = None
            self.folder: Any = None

        def on_train_begin(self, logs: Any = None) -> None:
            baton.wait_for_warm_up()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if self.word == PROFILE:
                self.folder = tempfile.TemporaryDirectory()
                device_trace.start(self.folder.name)
            super().on_epoch_begin(epoch, logs)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, logs)
            loss = float((logs or {})["loss"])
            if self.word is None:
                first = {"first_epoch_seconds": round(self.seconds[-1], 2), "first_loss": loss}
                self.word = baton.ready(**first, **facts(self.model))
            elif self.word == PROFILE:
                with self.folder:
                    self.word = baton.profiled(**device_trace.stop(self.folder.name, row["steps"]))
            else:
                self.word = baton.report(seconds=self.seconds[-1], loss=loss, peak_gib=peak(), **row)
            if self.word == STOP:
                self.model.stop_training = True

    return TurnClock()


def _clock_class(keras: Any) -> Any:
    import tensorflow as tf

    class EpochClock(keras.callbacks.Callback):  # type: ignore[misc]
        _supports_tf_logs = True

        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []
            self.began = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            tf.test.experimental.sync_devices()  # the loss is there before the last gradients are
            self.seconds.append(time.perf_counter() - self.began)

    return EpochClock
