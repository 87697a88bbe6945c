"""Climbs a ladder: every rung again and again, in turns, so that what drifts on the machine meets all of them alike."""

from __future__ import annotations

from typing import Callable

from tfvolta.ladder.rung import Rung
from tfvolta.ladder.rung_run import RungRun

Run = Callable[[Rung, int], RungRun]


def climb(rungs: list[Rung], repeats: int, run: Run, told: Callable[[RungRun], None]) -> list[RungRun]:
    """Runs all rungs.

    Every second time the order is turned round. A rung that adds nothing here (all of it is not applicable to the
    machine, the stack or the model) or that fails is not run again.

    Args:
        rungs: From the plain one on.
        repeats: How often.
        run: Runs one rung once.
        told: Called after each run.
    """
    found: list[RungRun] = []
    waiting = list(rungs)
    for repeat in range(1, repeats + 1):
        for rung in list(waiting if repeat % 2 else reversed(waiting)):
            done = run(rung, repeat)
            found.append(done)
            told(done)
            if done.is_idle or done.reason:
                waiting.remove(rung)
    return found
