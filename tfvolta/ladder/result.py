"""What a ladder has found: each rung with its runs, and what it gained over the one before."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Mapping, Optional

from tfvolta.ladder.gain import Gain, gain
from tfvolta.ladder.rung import PLAIN, Rung
from tfvolta.ladder.rung_run import RungRun, Setting


@dataclasses.dataclass(frozen=True)
class RungResult:
    """One rung.

    Attributes:
        rung: Which.
        runs: All of its runs.
        gain: Over the rung below it that was measured; None for the first.
        idle: Why it adds nothing here and was not repeated; empty for one that does.
    """

    rung: Rung
    runs: tuple[RungRun, ...]
    gain: Optional[Gain] = None
    idle: str = ""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What the rung adds, as its last run that got so far has seen it."""
        return next((run.settings for run in reversed(self.runs) if run.settings), ())

    @property
    def steps(self) -> Optional[int]:
        """Steps of a fit; None where no run got so far."""
        return next((run.steps for run in self.runs if run.steps), None)

    @property
    def faults(self) -> dict[str, int]:
        """What went wrong, and in how many runs."""
        return dict(collections.Counter(text for run in self.runs for text in run.faults))

    def to_json(self) -> dict[str, Any]:
        """The rung as JSON values."""
        return {
            "rung": self.rung.name,
            "adds": list(self.rung.added),
            "idle": self.idle,
            "settings": [dataclasses.asdict(each) for each in self.settings],
            "gain": None if self.gain is None else self.gain.to_json(self.steps),
            "faults": self.faults,
            "runs": [run.to_json() for run in self.runs],
        }


@dataclasses.dataclass(frozen=True)
class LadderResult:
    """A whole ladder.

    Attributes:
        rungs: From the plain one to the whole config.
        whole: The last rung against the plain one.
        skipped: Groups of sections that nothing here can use, with the reason.
        about: Script, machine and config, JSON values.
    """

    rungs: tuple[RungResult, ...]
    whole: Optional[Gain]
    skipped: Mapping[str, str]
    about: Mapping[str, Any]

    @classmethod
    def of(
        cls, rungs: list[Rung], runs: list[RungRun], skipped: Mapping[str, str], about: Mapping[str, Any]
    ) -> LadderResult:
        """From all runs.

        Args:
            rungs: In their order.
            runs: In any.
            skipped: Groups that were left out.
            about: Script, machine and config.
        """
        by_rung = {rung.name: tuple(run for run in runs if run.rung == rung.name) for rung in rungs}
        found: list[RungResult] = []
        below: tuple[RungRun, ...] = ()
        for rung in rungs:
            own = by_rung[rung.name]
            idle = any(run.is_idle for run in own)
            why = " ".join(dict.fromkeys(each.message for run in own for each in run.settings)) if idle else ""
            found.append(RungResult(rung, own, None if idle else gain(own, below), why))
            if not idle and any(not run.reason for run in own):
                below = own
        whole = gain(below, by_rung[PLAIN]) if below and below[0].rung != PLAIN else None
        return cls(tuple(found), whole, skipped, about)

    @property
    def failed(self) -> bool:
        """Whether a rung has no run that ended well."""
        return any(result.runs and all(run.reason for run in result.runs) for result in self.rungs)

    def to_json(self) -> dict[str, Any]:
        """The ladder as JSON values."""
        return {
            **self.about,
            "rungs": [each.to_json() for each in self.rungs],
            "whole": None if self.whole is None else self.whole.to_json(self.rungs[0].steps),
            "skipped": dict(self.skipped),
        }
