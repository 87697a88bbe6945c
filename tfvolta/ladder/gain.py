"""What a rung gains over another, from runs that took turns; nothing is called a gain that the spread explains."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

from tfvolta.ladder.rung_run import RungRun
from tfvolta.measure.exact import sign_interval
from tfvolta.measure.statistics import Interval, median

FASTER, SLOWER, OPEN, FEW, UNKNOWN = "faster", "slower", "no difference shown", "too few repeats", "not measured"
_ENOUGH = 0.9  # below this confidence an interval decides nothing: five pairs have 0.94


@dataclasses.dataclass(frozen=True)
class Gain:
    """A rung against another.

    Attributes:
        treated: The rung.
        reference: The other one.
        ratio: Of throughput, pair by pair of one repeat; None where no repeat has both.
        pairs: How many there are.
        verdict: ``faster``, ``slower``, ``no difference shown``, ``too few repeats`` or ``not measured``.
        first_step_seconds: How much longer the first step takes; None where not measured.
        earned_back_steps: Steps after which a faster rung has made up for its longer first step; None where there is
            nothing to make up for, or nothing that does.
    """

    treated: str
    reference: str
    ratio: Optional[Interval]
    pairs: int
    verdict: str
    first_step_seconds: Optional[float] = None
    earned_back_steps: Optional[float] = None

    def text(self, steps: Optional[int] = None) -> str:
        """The gain in sentences, with what it costs at the start.

        Args:
            steps: Of a fit of the script; None where not known.
        """
        if self.ratio is None:
            return f"{UNKNOWN} against {self.reference}."
        low, high, share = self.ratio.low, self.ratio.high, f"{100 * self.ratio.confidence:.0f} %"
        text = f"{self.verdict}: {self.ratio.estimate:.3g} times the throughput of {self.reference}"
        text += f", {low:.3g} to {high:.3g} ({share}, {self.pairs} pair{'s' * (self.pairs > 1)})"
        if self.verdict == FEW:
            text += "; five repeats or more decide"
        if self.first_step_seconds is not None:
            longer = "longer" if self.first_step_seconds >= 0 else "less"
            text += f". The first step takes {abs(self.first_step_seconds):.2g} s {longer}"
        if self.earned_back_steps is not None:
            has = "" if steps is None else f"; a fit here has {steps}"
            text += f", earned back after {self.earned_back_steps:,.0f} steps{has}"
        return f"{text}."

    def to_json(self, steps: Optional[int] = None) -> dict[str, Any]:
        """The gain as JSON values, in sentences too."""
        ratio = None if self.ratio is None else self.ratio.to_json()
        return {**dataclasses.asdict(self), "ratio": ratio, "text": self.text(steps)}


def gain(treated: Sequence[RungRun], reference: Sequence[RungRun]) -> Optional[Gain]:
    """Sets the runs of a rung against those of another.

    Args:
        treated: Runs of the rung.
        reference: Runs of the other; of the same repeat makes a pair.

    Returns:
        The gain; None where one of them has no runs at all.
    """
    if not treated or not reference:
        return None
    names = treated[0].rung, reference[0].rung
    by_repeat = {run.repeat: run for run in reference if _rate(run)}
    pairs = [(run, by_repeat[run.repeat]) for run in treated if _rate(run) and run.repeat in by_repeat]
    if not pairs:
        return Gain(*names, None, 0, UNKNOWN)
    counted = all(a.examples_per_second and b.examples_per_second for a, b in pairs)
    ratio = sign_interval([_rate(a, counted) / _rate(b, counted) for a, b in pairs])
    verdict = _verdict(ratio)
    longer = _middle([_minus(a.first_step_seconds, b.first_step_seconds) for a, b in pairs])
    saved = _middle([_minus(b.step_seconds, a.step_seconds) for a, b in pairs])
    earned = longer / saved if verdict == FASTER and longer and saved and longer > 0 and saved > 0 else None
    return Gain(*names, ratio, len(pairs), verdict, longer, earned)


def _rate(run: RungRun, counted: bool = False) -> float:
    """Examples a second, or steps where examples are not counted; 0 for a run that did not end well."""
    if run.reason:
        return 0.0
    if counted or run.examples_per_second:
        return run.examples_per_second or 0.0
    return 1.0 / run.step_seconds if run.step_seconds else 0.0


def _verdict(ratio: Interval) -> str:
    if ratio.low <= 1.0 <= ratio.high:
        return OPEN
    if ratio.confidence < _ENOUGH:
        return FEW
    return FASTER if ratio.low > 1.0 else SLOWER


def _minus(a: Optional[float], b: Optional[float]) -> Optional[float]:
    return None if a is None or b is None else a - b


def _middle(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return median(known) if known else None
