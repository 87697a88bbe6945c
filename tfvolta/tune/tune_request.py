"""What ``tfvolta tune`` is asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

from tfvolta.tune.candidates import Words
from tfvolta.tune.search import Budget
from tfvolta.tune.speed_process import Limits


@dataclasses.dataclass(frozen=True)
class TuneRequest:
    """What is to be searched.

    Attributes:
        config: Config file or template; None for the embedded default.
        overrides: ``KEY=VALUE`` words on top of it.
        script: The training script.
        arguments: Its own.
        directory: Folder of history and results.
        allowed: Groups of settings that may change results.
        tries: Settings to compare with the baseline instead of a search.
        budget: How long to search.
        limits: What a trial may take.
        measure_seconds: Of timed steps in a whole trial.
        repeats: Rounds at the end.
        fit: Which call of ``fit`` is timed.
        fresh: Whether nothing is taken from history.
        command: The command line.
    """

    config: Optional[str]
    overrides: Words
    script: str
    arguments: Words
    directory: Path
    allowed: tuple[str, ...] = ()
    tries: Words = ()
    budget: Budget = dataclasses.field(default_factory=Budget)
    limits: Limits = dataclasses.field(default_factory=Limits)
    measure_seconds: float = 4.0
    repeats: int = 4
    fit: int = 1
    fresh: bool = False
    command: tuple[str, ...] = ()
