"""From the clock of one epoch to its figures: which calls count, for how many batches, and in what time."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Optional, Sequence

from tfvolta.callbacks.call_clock import WARM_UP, CallClock

# XLA compiles each new shape without a new trace, so only the time shows it: a call this many times slower
# than the median, and longer than any compilation is short. It is reported as likely, not as certain.
_COMPILE_RATIO = 5.0
_COMPILE_SECONDS = 0.05
_LIKELY = "likely XLA compilation"


@dataclasses.dataclass(frozen=True)
class CompileStep:
    """A call left out because something was traced or compiled in it.

    Attributes:
        epoch: Number of the epoch, as Keras counts.
        step: Number of the call's first batch in the epoch.
        seconds: Duration of the call.
        reason: ``traced`` (seen) or ``likely XLA compilation`` (slow call of an XLA-compiled step).
    """

    epoch: int
    step: int
    seconds: float
    reason: str


@dataclasses.dataclass(frozen=True)
class StepCount:
    """Batches in an epoch, and what counted them.

    That is ``calls`` where each is one batch, else ``optimizer``, ``params`` of fit, or the last ``batch_number``.
    """

    steps: int
    source: str


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples in an epoch, and what counted them: the ``loss_tracker`` or the caller's ``argument``."""

    number: Optional[int]
    source: Optional[str]


@dataclasses.dataclass(frozen=True)
class Calls:
    """How the train function is called: batches in a call, and whether XLA compiles the step."""

    per_call: int
    compiled: bool


@dataclasses.dataclass(frozen=True)
class EpochTimes:
    """Figures of one epoch; validation is not in it.

    Attributes:
        epoch: Number of the epoch, as Keras counts.
        steps: Training batches.
        steps_source: What counted them: ``calls``, ``optimizer``, ``params`` or ``batch_number``.
        seconds: Wall time of training, up to the moment at which the device had finished.
        wait_seconds: Of these, after the last call returned: how far the host had run ahead of the device.
        timed_steps: Steps that count, without warm-up and compilation.
        timed_seconds: Wall time of these.
        examples: Training examples; None where nothing counts them.
        examples_source: ``loss_tracker`` or ``argument``.
        step_seconds: Seconds per batch of each counted call.
        compile_steps: Calls left out because of tracing or compilation.
        warmup_steps: Steps left out as warm-up.
    """

    epoch: int
    steps: int
    steps_source: str
    seconds: float
    wait_seconds: float
    timed_steps: int
    timed_seconds: float
    examples: Optional[int]
    examples_source: Optional[str]
    step_seconds: tuple[float, ...]
    compile_steps: tuple[CompileStep, ...]
    warmup_steps: int

    @property
    def timed_examples(self) -> Optional[float]:
        """Examples of the counted steps; each step is taken to have the epoch's mean."""
        return None if self.examples is None or not self.steps else self.examples * self.timed_steps / self.steps

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values, with medians in place of the single steps."""
        timed = self.timed_examples
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "steps_source": self.steps_source,
            "seconds": self.seconds,
            "wait_seconds": self.wait_seconds,
            "timed_steps": self.timed_steps,
            "timed_seconds": self.timed_seconds,
            "examples": self.examples,
            "examples_source": self.examples_source,
            "examples_per_second": timed / self.timed_seconds if timed and self.timed_seconds > 0 else None,
            "step_seconds_median": statistics.median(self.step_seconds) if self.step_seconds else None,
        }


def count_steps(clock: CallClock, attempted: Optional[int], in_fit: Optional[int], per_call: int) -> StepCount:
    """Batches of an epoch.

    Keras 3 numbers the last batch of an epoch too high when ``steps_per_execution`` does not divide it, and Keras 2
    does not end a call in which the data ran out. The optimiser's count is exact; it is taken where it fits
    the calls, which it does not with gradient accumulation or several optimisers.

    Args:
        clock: Calls of the epoch.
        attempted: Optimiser steps in the epoch, skipped ones included; None where not known.
        in_fit: ``steps`` of fit's parameters; None where not known.
        per_call: ``steps_per_execution``.
    """
    if per_call == 1:
        return StepCount(clock.calls, "calls")
    least = max(0, clock.calls - 1) * per_call + min(1, clock.calls)
    if attempted is not None and least <= attempted <= clock.begun_calls * per_call:
        return StepCount(attempted, "optimizer")
    if in_fit is not None and least <= in_fit <= clock.begun_calls * per_call:
        return StepCount(in_fit, "params")
    return StepCount(clock.last_batch + 1 - clock.first_batch, "batch_number")


def epoch_times(
    clock: CallClock,
    epoch: int,
    seconds: float,
    wait_seconds: float,
    counted: StepCount,
    examples: Examples,
    calls: Calls,
) -> EpochTimes:
    """Turns the calls of an epoch into its figures, and tells the clock what a normal call takes.

    Args:
        clock: Calls of the epoch.
        epoch: Number of the epoch, as Keras counts.
        seconds: Wall time of training, up to the moment at which the device had finished.
        wait_seconds: Of these, after the last call returned.
        counted: Batches of the epoch.
        examples: Examples of the epoch.
        calls: How the train function is called.
    """
    left_out, timed = _sort_calls(clock, calls.compiled)
    batches = {call: _batches_of(call, clock, counted.steps, calls.per_call) for call in [*left_out, *dict(timed)]}
    likely = sum(spent for spent, reason in left_out.values() if reason == _LIKELY)
    return EpochTimes(
        epoch=epoch,
        steps=counted.steps,
        steps_source=counted.source,
        seconds=seconds,
        wait_seconds=wait_seconds,
        timed_steps=max(0, counted.steps - sum(batches[call] for call in left_out)),
        timed_seconds=max(0.0, seconds - clock.set_aside_seconds - likely),
        examples=examples.number,
        examples_source=examples.source,
        step_seconds=tuple(spent / batches[call] for call, spent in timed),
        compile_steps=tuple(
            CompileStep(epoch, call * calls.per_call, spent, reason)
            for call, (spent, reason) in sorted(left_out.items())
            if reason != WARM_UP
        ),
        warmup_steps=sum(batches[call] for call, (_, reason) in left_out.items() if reason == WARM_UP),
    )


def _sort_calls(clock: CallClock, compiled: bool) -> tuple[dict[int, tuple[float, str]], list[tuple[int, float]]]:
    """Calls left out with their seconds and reason, and calls that count."""
    left_out = dict(clock.set_aside)
    timed = [(call, seconds) for call, seconds in clock.kept() if call not in left_out]
    if compiled:
        usual = [seconds for call, seconds in clock.kept() if left_out.get(call, (0.0, WARM_UP))[1] == WARM_UP]
        left_out.update({call: (seconds, _LIKELY) for call, seconds in _likely_compilations(timed, usual)})
        timed = [(call, seconds) for call, seconds in timed if call not in left_out]
    if timed:
        clock.expect(statistics.median(seconds for _, seconds in timed))
    return left_out, timed


def _batches_of(call: int, clock: CallClock, steps: int, per_call: int) -> int:
    """Batches in one call: ``per_call``, fewer in the last one of an epoch."""
    return max(1, min(per_call, steps - call * per_call)) if call == clock.calls - 1 else per_call


def _likely_compilations(timed: Sequence[tuple[int, float]], usual: Sequence[float]) -> list[tuple[int, float]]:
    """Slow calls among those that count, compared with every call of the epoch in which nothing was traced.

    Warm-up calls count in the comparison: the smaller last batch of a short epoch may be the only call after them.
    """
    if len(usual) < 2:
        return []
    limit = max(_COMPILE_SECONDS, _COMPILE_RATIO * statistics.median_low(usual))
    return [(call, seconds) for call, seconds in timed if seconds > limit]
