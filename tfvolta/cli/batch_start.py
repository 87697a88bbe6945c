"""Where ``tfvolta batch-size`` begins: near the bound that an estimate of memory sees, if one can be made."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Callable, Optional

from tfvolta.errors import TfvoltaError
from tfvolta.tune.first_size import FirstSize, growth_of, start_batch
from tfvolta.tune.trial_request import TrialRequest

FALLBACK = 32
Look = Callable[..., dict[str, Any]]


def first_size(
    trial: TrialRequest, config: Any, seconds: float, look: Optional[Look] = None, facts: Any = None
) -> FirstSize:
    """The first size, and says where it comes from.

    Args:
        trial: What will be tried.
        config: Of the trials.
        seconds: How long the estimate may take.
        look: ``tfvolta.cli.script_estimate.look`` unless given.
        facts: The machine; probed when None.
    """
    from tfvolta.facts.probe import probe

    gpus = (probe() if facts is None else facts).gpus
    if not gpus:
        return _told(FirstSize(FALLBACK, None, "there is no GPU whose memory could be estimated"))
    try:
        found = _estimate(trial, seconds, look)
        growth = growth_of(found, config.get("xla.jit"))
    except (TfvoltaError, KeyError) as error:
        why = error.summary if isinstance(error, TfvoltaError) else f"an estimate without {error}"
        return _told(FirstSize(FALLBACK, None, f"no estimate could be made: {why}"))
    limit = config.get("devices.memory_limit_mb") or min(gpu.memory_mb for gpu in gpus)
    replicas = len(gpus) if config.get("strategy.kind") == "mirrored" else 1
    return _told(start_batch(growth, int(limit) * 2**20, replicas, FALLBACK))


def _estimate(trial: TrialRequest, seconds: float, look: Optional[Look]) -> dict[str, Any]:
    """Two estimates of the script's step, at two sizes, from a process that sees no GPU."""
    from tfvolta.cli import script_estimate
    from tfvolta.script.footprint import Request

    overrides = (*trial.overrides, "strategy.kind=default")
    request = Request(
        trial.script, trial.arguments, trial.config, overrides, batch=FALLBACK, compare_half=True, memory=True
    )
    return (look or script_estimate.look)(dataclasses.asdict(request), seconds)


def _told(first: FirstSize) -> FirstSize:
    print(f"tfvolta: first size {first.size}: {first.reason}", file=sys.stderr, flush=True)
    return first
