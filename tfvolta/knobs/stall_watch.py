"""A thread that notices when training stands still."""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType
from typing import Callable, NamedTuple, Optional

from tfvolta.evidence.heartbeat import BEGUN, ENDED, EPOCH, OTHER, HeartbeatFile
from tfvolta.knobs.ticker import Ticker

# The first step of a fit, and the first of an evaluation in it, trace and compile: where the config does not say how
# long that may take, they get this many times the limit, and at least so many seconds.
FIRST_STEP_FACTOR = 3.0
LEAST_FIRST_STEP_SECONDS = 120.0
THREAD_NAME = "tfvolta-watchdog"
_PERIOD_SECONDS = 1.0
_CALLS_FIT = "fit"


def first_step_seconds(stall_seconds: float) -> float:
    """How long a first step may take where later ones may take ``stall_seconds``."""
    return max(FIRST_STEP_FACTOR * stall_seconds, LEAST_FIRST_STEP_SECONDS)


class StallWatch:
    """Counts progress, writes signs of life once a second, and calls back when there was none for too long.

    What runs for every batch is an assignment to ``counts``; the clock, the file and the comparison are the thread's.

    Attributes:
        counts: Four numbers, changed in place by who knows of progress: see ``tfvolta.evidence.heartbeat``.
        on_stall: Called in the thread with the seconds without progress and the limit, once for each standstill.
        state: What training does, one of ``tfvolta.evidence.heartbeat.STATES``.
        answers: Whether SIGUSR1 makes this process write its stacks; goes into the heartbeat.
    """

    def __init__(
        self,
        stall_seconds: Optional[float],
        first_step: Optional[float] = None,
        ends: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Prepares; the thread starts with the first ``arm``.

        Args:
            stall_seconds: Time without a finished batch; None writes signs of life and watches nothing.
            first_step: Seconds for a first step; from ``stall_seconds`` when None.
            ends: Whether the process ends when it stands still; goes into the heartbeat.
            clock: Seconds that never go back.
        """
        self.ends = ends
        self.counts = memoryview(bytearray(32)).cast("Q")
        self.on_stall: Callable[[float, float], None] = lambda seconds, limit: None
        self.state = "between fits"
        self.answers = False
        self._stall_seconds = stall_seconds
        self._first_step = first_step
        self._clock = clock
        self._file: Optional[HeartbeatFile] = None
        period = _PERIOD_SECONDS if stall_seconds is None else min(_PERIOD_SECONDS, stall_seconds / 5)
        self._ticker = Ticker(THREAD_NAME, period, self.check)
        self._fit: Optional[_Fit] = None
        self._ended = self._others = 0
        self._seen: tuple[int, ...] = ()
        self._progressed = clock()
        self._reported = False

    def write_to(self, file: HeartbeatFile) -> None:
        """Puts progress into a heartbeat file from now on; numbers so far are carried over."""
        if self._file is not file:
            file.counts[:] = self.counts
            self.counts, self._file = file.counts, file

    def arm(self) -> None:
        """A fit begins in the calling thread."""
        self._fit = _fit_frame()
        self._begin("first step")
        self._ticker.start()

    def start_from(self, step: int) -> None:
        """Steps are counted on from this one, which is no progress of this fit."""
        self._ended = self.counts[BEGUN] = self.counts[ENDED] = step

    def evaluate(self) -> None:
        """An evaluation inside the fit begins."""
        self._begin("evaluating")

    def train_on(self) -> None:
        """The evaluation has ended, and training goes on."""
        self.counts[OTHER] += 1
        self.state = "training"

    def disarm(self) -> None:
        """The fit has ended; what comes until the next one is not watched."""
        self._begin("between fits")

    def stop(self) -> None:
        """Ends the thread."""
        self._ticker.stop()

    @property
    def is_running(self) -> bool:
        """Whether the thread is there."""
        return self._ticker.is_running

    @property
    def limit_seconds(self) -> Optional[float]:
        """How long there may be no progress in the present state; None where nothing is watched."""
        if self._stall_seconds is None or self.state not in ("first step", "training", "evaluating"):
            return None
        is_first = self.state == "first step" or (self.state == "evaluating" and self.counts[OTHER] == self._others)
        return (self._first_step or first_step_seconds(self._stall_seconds)) if is_first else self._stall_seconds

    def check(self) -> None:
        """Looks for progress, as the thread does once a second."""
        now = self._clock()
        seen = tuple(self.counts)
        if seen != self._seen:
            if self.state == "first step" and seen[ENDED] != self._ended:
                self.state = "training"
            self._seen, self._progressed, self._reported = seen, now, False
        self._write(now)
        limit, seconds = self.limit_seconds, now - self._progressed
        if limit is None or seconds <= limit or self._reported:
            return
        if not _is_there(self._fit):
            self.state = "between fits"  # an exception has left fit, and Keras calls no callback then
            return
        self._reported = True
        self.on_stall(seconds, limit)

    def _begin(self, state: str) -> None:
        self.state = state
        self._ended, self._others = self.counts[ENDED], self.counts[OTHER]
        self._seen, self._progressed, self._reported = tuple(self.counts), self._clock(), False
        self._write(self._progressed)

    def _write(self, now: float) -> None:
        if self._file is not None:
            moment = time.time() - (now - self._progressed)
            self._file.write(self.state, moment, self.limit_seconds, answers=self.answers, ends=self.ends)


class _Fit(NamedTuple):
    """A call of ``fit``, without holding on to its frame, which would keep the data and the model alive."""

    thread: int
    frame: int
    code: CodeType


def _fit_frame() -> Optional[_Fit]:
    """The ``fit`` that calls; None where none does, as in a training loop of one's own."""
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _CALLS_FIT:
            return _Fit(threading.get_ident(), id(frame), frame.f_code)
        frame = frame.f_back
    return None


def _is_there(fit: Optional[_Fit]) -> bool:
    """Whether a ``fit`` has not returned yet. A frame keeps its identity while it runs; another may get it later."""
    if fit is None:
        return True
    frame = sys._current_frames().get(fit.thread)
    while frame is not None:
        if id(frame) == fit.frame and frame.f_code is fit.code:
            return True
        frame = frame.f_back
    return False


__all__ = ["BEGUN", "ENDED", "EPOCH", "OTHER", "StallWatch", "first_step_seconds"]
