"""Figures for timings: location and spread that outliers do not move, and intervals without a normal assumption."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

import numpy as np

# Makes the median absolute deviation equal to the standard deviation of normally distributed values.
# Source: Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, J. Am. Stat. Assoc. 88 (1993).
MAD_TO_SIGMA = 1.4826


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and the interval around it, in the unit of the values.

    Attributes:
        estimate: Of the whole sample.
        low: Lower end.
        high: Upper end.
        confidence: Share of such intervals that hold the true value, such as 0.95.
    """

    estimate: float
    low: float
    high: float
    confidence: float

    def to_json(self) -> dict[str, float]:
        """The interval as JSON values."""
        return dataclasses.asdict(self)


def median(values: Sequence[float]) -> float:
    """Middle value; the mean of the two middle ones for an even number.

    Raises:
        ValueError: There are no values, or one is not finite.
    """
    return float(np.median(_sample(values)))


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, scaled to the standard deviation of a normal distribution.

    Raises:
        ValueError: There are no values, or one is not finite.
    """
    sample = _sample(values)
    return float(MAD_TO_SIGMA * np.median(np.abs(sample - np.median(sample))))


def iqr(values: Sequence[float]) -> float:
    """Interquartile range, with linear interpolation between values.

    Raises:
        ValueError: There are no values, or one is not finite.
    """
    low, high = np.percentile(_sample(values), [25, 75])
    return float(high - low)


def bootstrap_median(
    values: Sequence[float], confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of the median.

    Args:
        values: Independent measurements.
        confidence: Between 0 and 1.
        resamples: Samples drawn with replacement.
        seed: Makes the interval reproducible.

    Raises:
        ValueError: There are no values, one is not finite, or ``confidence`` is not between 0 and 1.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, received {confidence!r}")
    sample = _sample(values)
    random = np.random.default_rng(seed)
    medians = np.median(random.choice(sample, size=(resamples, sample.size)), axis=1)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return Interval(float(np.median(sample)), float(low), float(high), confidence)


def paired_difference(
    treated: Sequence[float], reference: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Median of ``treated - reference`` over pairs measured next to each other, which takes slow drift out.

    Raises:
        ValueError: The two differ in length, or as in ``bootstrap_median``.
    """
    a, b = _pairs(treated, reference)
    return bootstrap_median(list(a - b), confidence, seed=seed)


def paired_ratio(
    treated: Sequence[float], reference: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Median of ``treated / reference`` over pairs measured next to each other.

    Raises:
        ValueError: The two differ in length, a reference is not positive, or as in ``bootstrap_median``.
    """
    a, b = _pairs(treated, reference)
    if not (b > 0).all():
        raise ValueError("reference: expected positive values, received one that is zero or negative")
    return bootstrap_median(list(a / b), confidence, seed=seed)


def _pairs(treated: Sequence[float], reference: Sequence[float]) -> tuple[Any, Any]:
    a, b = _sample(treated), _sample(reference)
    if a.size != b.size:
        raise ValueError(f"expected as many treated as reference values, received {a.size} and {b.size}")
    return a, b


def _sample(values: Sequence[float]) -> Any:
    sample = np.asarray(values, dtype=np.float64).ravel()
    if not sample.size:
        raise ValueError("expected at least one value, received none")
    if not np.isfinite(sample).all():
        raise ValueError("expected finite values, received nan or infinity")
    return sample
