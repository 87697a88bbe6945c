"""Finds the largest and the fastest batch of a script by trying sizes in processes of their own."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Optional

from tfvolta.tune.batch_result import BatchResult
from tfvolta.tune.batch_search import MULTIPLE, BatchSearch
from tfvolta.tune.trial import Trial
from tfvolta.tune.trial_request import TrialRequest

Run = Callable[[TrialRequest], Trial]
_SHARE = 0.5  # of the memory that a first batch may need by an estimate


@dataclasses.dataclass(frozen=True)
class Allowance:
    """How far a search may go.

    Attributes:
        start: First size.
        most: Largest size; None for no bound.
        trials: Largest number of trials.
        seconds: No trial is begun after so long.
    """

    start: int
    most: Optional[int] = None
    trials: int = 20
    seconds: float = 3600.0


def find(request: TrialRequest, allowance: Allowance, run: Run, told: Callable[[Trial], None]) -> BatchResult:
    """Searches.

    Args:
        request: The script; its batch is set for each trial.
        allowance: How far to go.
        run: Runs one trial.
        told: Called after each.
    """
    started, search, stopped = time.monotonic(), BatchSearch(allowance.start, allowance.most), ""
    while True:
        size = search.next()
        if size is None:
            break
        if len(search.trials) >= allowance.trials:
            stopped = f"ended after {allowance.trials} trials"
            break
        if time.monotonic() - started > allowance.seconds:
            stopped = f"ended after {allowance.seconds:g} s"
            break
        trial = run(dataclasses.replace(request, batch=size))
        search.take(trial)
        told(trial)
    return BatchResult.of(search, stopped)


def start_batch(needed_bytes: Callable[[int], Optional[int]], limit_bytes: int, fallback: int = 32) -> int:
    """A first size from an estimate of the memory that a step needs; half of what there is leaves room for its error.

    Args:
        needed_bytes: Bytes of a step at a batch size; None where that cannot be said.
        limit_bytes: What there is.
        fallback: The size where nothing can be said.
    """
    size, found = MULTIPLE, None
    while size <= 2**20:
        needed = needed_bytes(size)
        if needed is None or needed > _SHARE * limit_bytes:
            break
        found, size = size, size * 2
    return found if found is not None else (MULTIPLE if needed is not None else fallback)
