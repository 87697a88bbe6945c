"""A fit in turns: warm-up, then some steps whenever the driver of turns.py says so.

All turns are one epoch of one ``fit``, since what a plan changes for a fit ends with it, and the next one would be
traced anew; and so that a turn can be as long as it should last, which nobody knows before the first steps.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from typing import Any, Callable, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.baton import STOP, Baton
from tfvolta.callbacks.base import Callback

ENDLESS = {
    "epochs": 1,
    "steps_per_epoch": 100_000_000,
    "shuffle": False,
    "verbose": 0,
}  # the driver says when it is enough
Facts = Callable[[], dict[str, Any]]
_PROBED = 4  # steps after the first one from which the length of a turn is chosen


class TurnCallback(Callback):
    """Times turns of some steps and gives their figures to the driver.

    Args:
        baton: What passes between this process and the driver.
        batch: Examples of a step.
        steps: Of a turn.
        seconds: That a turn shall last, instead of ``steps``.
        facts: Makes what holds for the whole measurement; called after the warm-up.
    """

    def __init__(
        self,
        baton: Baton,
        batch: int,
        steps: Optional[int] = None,
        seconds: Optional[float] = None,
        facts: Optional[Facts] = None,
    ):
        super().__init__()
        self._baton, self._batch, self._facts = baton, batch, facts
        self._steps, self._seconds = steps, seconds
        self._phases = [self._first, self._probe, self._warm]
        self._left, self._count = 1, 1
        self._began = self._made = time.perf_counter()
        self._lasted: list[float] = []
        self._first_peak: Optional[int] = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts the clock of the first step."""
        self._began = self._made = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts; at the end of a turn waits for the device, and then for the next turn."""
        self._left -= 1
        if self._left:
            return
        import tensorflow as tf

        tf.test.experimental.sync_devices()
        passed = time.perf_counter() - self._began
        if self._phases:
            word = self._phases.pop(0)(tf, passed)
        else:
            loss = float((logs or {}).get("loss", float("nan")))
            examples = self._batch * self._count
            word = self._baton.report(seconds=passed, examples=examples, steps=self._count, loss=loss, **memory_of(tf))
            self._next(self._count)
        if word == STOP:
            self.model.stop_training = True
        self._began = time.perf_counter()

    def _first(self, tf: Any, passed: float) -> str:
        """After the step that was traced, compiled and tuned."""
        self._lasted.append(round(passed, 3))
        self._first_peak = memory_of(tf).get("peak_bytes")
        self._next(_PROBED)
        return ""

    def _probe(self, tf: Any, passed: float) -> str:
        """After the steps from which the length of a turn is chosen; again where they were over at once."""
        del tf
        self._lasted.append(round(passed, 3))
        wanted = self._seconds
        if wanted is not None and passed < wanted / 4:
            self._phases.insert(0, self._probe)
            self._next(max(self._count + 1, min(10 * self._count, int(self._count * wanted / 2 / max(passed, 1e-6)))))
            return ""
        if self._steps is None:
            self._steps = max(1, round(self._count * (wanted or passed) / passed))
        self._next(self._steps)
        return ""

    def _warm(self, tf: Any, passed: float) -> str:
        """After a turn that is not counted."""
        self._lasted.append(round(passed, 3))
        facts = {} if self._facts is None else self._facts()
        forget_peak(tf)
        self._next(self._steps or 1)
        return self._baton.ready(
            warm_up_seconds=round(time.perf_counter() - self._made, 2),
            warm_up_parts=self._lasted,
            first_step_peak_bytes=self._first_peak,
            **machine_of(tf),
            **facts,
        )

    def _next(self, steps: int) -> None:
        self._left = self._count = steps


def own_baton() -> Baton:
    """The baton of this process.

    Raises:
        SystemExit: There is no driver.
    """
    baton = Baton.from_environment()
    if baton is None:
        raise SystemExit("this is the measured side of a benchmark: start measure.py, which gives the turns")
    return baton


def keras_of(tf: Any) -> Any:
    """The Keras that the environment means."""
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") and not tf.__version__.startswith("2.15"):
        import tf_keras

        return tf_keras
    import keras

    return keras


def limit_memory(tf: Any, gibibytes: Optional[float]) -> None:
    """Bounds what this process takes of each GPU, so that those that wait beside it have theirs.

    The allocator doubles what it holds whenever it needs more; the bound keeps that from the neighbours. What is needed
    grows as before: TF_FORCE_GPU_ALLOW_GROWTH is read for bounded devices too.
    """
    for gpu in tf.config.list_physical_devices("GPU"):
        if gibibytes is None:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=int(gibibytes * 1024))
            tf.config.set_logical_device_configuration(gpu, [limit])


def memory_of(tf: Any) -> dict[str, int]:
    """Peak bytes of the first GPU since the warm-up, and what is there between epochs; empty without a GPU."""
    if not tf.config.list_logical_devices("GPU"):
        return {}  # TensorFlow counts no bytes on a CPU
    info = tf.config.experimental.get_memory_info("GPU:0")
    return {"peak_bytes": info["peak"], "resident_bytes": info["current"]}


def forget_peak(tf: Any) -> None:
    """Starts the peak anew: the search for kernels takes more than any step after it."""
    if tf.config.list_logical_devices("GPU"):
        tf.config.experimental.reset_memory_stats("GPU:0")


def machine_of(tf: Any) -> dict[str, Any]:
    """Device and versions."""
    gpus = tf.config.list_physical_devices("GPU")
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name") if gpus else "CPU"
    return {"device": name, "tensorflow": tf.__version__, "keras": keras_of(tf).__version__}
