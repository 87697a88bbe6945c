"""Why a worker failed, where another one shows it: stopped, silent, or gone before its time."""

from __future__ import annotations

from typing import Optional, Sequence

from tfvolta.launch.process import Worker
from tfvolta.launch.standing import Standing


def cause(failed: Worker, workers: Sequence[Worker], standing: Standing) -> str:
    """What is wrong with the others, for whom a worker may have waited in vain; empty where nothing is.

    A collective ends with an error on those who are well, which often are the first to fail.

    Args:
        failed: The worker that has failed first.
        workers: All of the run.
        standing: Knows their signs of life.
    """
    others = [worker for worker in workers if worker is not failed]
    stopped = [worker.task.name for worker in others if worker.is_stopped]
    found = [f"{name} is stopped{_place(standing.step(name))} (SIGSTOP, or a debugger)" for name in stopped]
    living = [each.task.name for each in others if each.returncode is None and each.task.name not in stopped]
    found += [
        f"{name} has given no sign of life for {seconds:.0f} s{_place(standing.step(name))}"
        for name, seconds in standing.silent(living)
    ]
    left = [worker for worker in others if worker.returncode == 0 and worker.task.trains]
    found += [f"{each.task.name} had ended before that, with code 0{_place(each.step)}" for each in left]
    return "; ".join(found)


def _place(step: Optional[int]) -> str:
    return f" at step {step}" if step else ""
