"""The figures of a run that a list of runs shows, and those that a later run is held to."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Optional

from tfvolta.evidence.schema import Evidence


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a run measured, in short; None where it did not.

    Attributes:
        examples_per_second: Of the last fit; of all ranks together.
        step_seconds: Median.
        peak_bytes: Device memory at its peak, of the GPU that had most.
        loss: Of the last epoch; infinite or NaN where it was.
    """

    examples_per_second: Optional[float] = None
    step_seconds: Optional[float] = None
    peak_bytes: Optional[int] = None
    loss: Optional[float] = None

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values."""
        loss = self.loss if self.loss is None or math.isfinite(self.loss) else str(self.loss)
        return {**dataclasses.asdict(self), "loss": loss}


@dataclasses.dataclass(frozen=True)
class FitFigures:
    """What one fit of a run measured.

    Attributes:
        steps_per_second: Without warm-up and compilation; None where none was timed.
        batch: Examples in a step; None where they were not counted.
        steps_per_epoch: None where they were not counted.
        losses: By number of the epoch.
        seed: TensorFlow's, which run.seed or the script had set; None where nobody had.
    """

    steps_per_second: Optional[float]
    batch: Optional[float]
    steps_per_epoch: Optional[float]
    losses: Mapping[int, float]
    seed: Optional[int] = None


def figures_of(evidence: Evidence) -> Figures:
    """The figures of a run."""
    speed = _mapping(evidence.measurements.get("throughput"))
    memory = _mapping(_mapping(evidence.measurements.get("memory")).get("peak_bytes"))
    peaks = [int(value) for value in (number(each) for each in memory.values()) if value is not None]
    fit = _mapping(evidence.fits[-1]) if evidence.fits else {}
    rate = speed.get("examples_per_second_of_all_ranks") or speed.get("examples_per_second")
    return Figures(
        examples_per_second=number(rate),
        step_seconds=number(speed.get("step_seconds_median")),
        peak_bytes=max(peaks, default=None),
        loss=number(fit.get("loss")),
    )


def fits_of(evidence: Evidence) -> tuple[FitFigures, ...]:
    """The figures of each fit of a run."""
    return tuple(_fit(_mapping(each)) for each in evidence.fits)


def _fit(fit: Mapping[str, Any]) -> FitFigures:
    steps, seconds = number(fit.get("timed_steps")), number(fit.get("timed_seconds"))
    rate = steps / seconds if steps and seconds else None
    examples, all_steps = number(fit.get("examples_per_second")), number(fit.get("steps"))
    losses = {int(epoch): number(loss) for epoch, loss in _mapping(fit.get("losses")).items() if str(epoch).isdigit()}
    return FitFigures(
        steps_per_second=rate,
        batch=examples / rate if examples and rate else None,
        steps_per_epoch=all_steps / len(losses) if all_steps and losses else None,
        losses={epoch: loss for epoch, loss in losses.items() if loss is not None},
        seed=fit["seed"] if isinstance(fit.get("seed"), int) else None,
    )


def number(value: Any) -> Optional[float]:
    """A number, or one that was written as a word since JSON has no such number; None for anything else."""
    if isinstance(value, str) and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
