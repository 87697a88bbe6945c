"""From the epochs of a fit to the figures that a report shows."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Optional, Sequence

from tfvolta.callbacks.epoch_times import EpochTimes

# Waiting at the end of an epoch for longer than this share of it, and for several steps, means that the calls returned
# before the device had finished: their times say how fast the host is, and only the epoch's wall time counts.
_AHEAD_SHARE = 0.1
_AHEAD_STEPS = 5


def summarise(epochs: Sequence[EpochTimes], step_seconds: Sequence[float], ranks: int = 1) -> dict[str, Any]:
    """Figures of a fit as JSON values.

    The spread is the interquartile range and the median absolute deviation, scaled by 1.4826 so that it equals the
    standard deviation of normally distributed times. Source: Rousseeuw and Croux, Alternatives to the Median
    Absolute Deviation, Journal of the American Statistical Association 88 (1993).

    Args:
        epochs: Figures of each epoch.
        step_seconds: Single step times of all of them.
        ranks: Processes that count only their own examples and step together.
    """
    seconds = sum(epoch.seconds for epoch in epochs)
    rate = _examples_per_second(epochs)
    of_all = {"examples_per_second_of_all_ranks": None if rate is None else rate * ranks} if ranks > 1 else {}
    return {
        "examples_per_second": rate,
        **of_all,
        **_spread(step_seconds),
        "step_times": _meaning(epochs, step_seconds),
        "steps": sum(epoch.steps for epoch in epochs),
        "timed_steps": sum(epoch.timed_steps for epoch in epochs),
        "warmup_steps": sum(epoch.warmup_steps for epoch in epochs),
        "train_seconds": seconds,
        "timed_seconds": sum(epoch.timed_seconds for epoch in epochs),
        "compile_steps": [dataclasses.asdict(step) for epoch in epochs for step in epoch.compile_steps],
        "compile_seconds": sum(step.seconds for epoch in epochs for step in epoch.compile_steps),
        "epochs": [epoch.to_json() for epoch in epochs],
    }


def _meaning(epochs: Sequence[EpochTimes], step_seconds: Sequence[float]) -> Optional[str]:
    """``execution``, ``dispatch`` where the calls returned before the device had finished, None without steps."""
    if not step_seconds:
        return None
    waited = sum(epoch.wait_seconds for epoch in epochs)
    seconds = sum(epoch.seconds for epoch in epochs)
    ahead = max(_AHEAD_SHARE * seconds, _AHEAD_STEPS * len(epochs) * statistics.median(step_seconds))
    return "dispatch" if waited > ahead else "execution"


def _examples_per_second(epochs: Sequence[EpochTimes]) -> Optional[float]:
    counted = [(epoch.timed_examples, epoch.timed_seconds) for epoch in epochs if epoch.timed_steps]
    examples = [n for n, _ in counted if n is not None]
    seconds = sum(s for n, s in counted if n is not None)
    return sum(examples) / seconds if examples and seconds > 0 else None


def _spread(times: Sequence[float]) -> dict[str, Any]:
    if not times:
        return {"step_seconds_median": None, "step_seconds_iqr": None, "step_seconds_mad": None, "n": 0}
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [median] * 3
    return {
        "step_seconds_median": median,
        "step_seconds_iqr": quartiles[2] - quartiles[0],
        "step_seconds_mad": 1.4826 * statistics.median(abs(t - median) for t in times),
        "n": len(times),
    }
