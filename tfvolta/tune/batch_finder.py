"""Finds the largest and the fastest batch of a script by trying sizes in processes of their own."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Optional

from tfvolta.tune.batch_result import BatchResult
from tfvolta.tune.batch_search import BatchSearch
from tfvolta.tune.trial import Trial
from tfvolta.tune.trial_request import TrialRequest

Run = Callable[[TrialRequest], Trial]


@dataclasses.dataclass(frozen=True)
class Allowance:
    """How far a search may go.

    Attributes:
        start: First size.
        most: Largest size; None for no bound.
        trials: Largest number of trials.
        seconds: No trial is begun after so long.
        stride: Distance of the next size from the first, where an estimate has named it; sizes double where None.
    """

    start: int
    most: Optional[int] = None
    trials: int = 20
    seconds: float = 3600.0
    stride: Optional[int] = None


def find(request: TrialRequest, allowance: Allowance, run: Run, told: Callable[[Trial], None]) -> BatchResult:
    """Searches.

    Args:
        request: The script; its batch is set for each trial.
        allowance: How far to go.
        run: Runs one trial.
        told: Called after each.
    """
    started, search, stopped = (
        time.monotonic(),
        BatchSearch(allowance.start, allowance.most, stride=allowance.stride),
        "",
    )
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
