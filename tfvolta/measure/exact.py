"""Intervals and tests for a handful of values: exact where resampling so few would promise more than it keeps.

With seven values the percentile bootstrap's 95 % interval of the median holds it in 87 of 100 cases; the one here says
how often it does.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from typing import Sequence

from tfvolta.measure.statistics import Interval

_TAIL_STEPS = 2000


def sign_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the median between two of the values, as many from either end; no assumption but independence.

    Args:
        values: Measurements.
        confidence: What is asked for. Fewer than six values cannot give 0.95: then it is the whole range.

    Returns:
        The median with its interval; ``confidence`` is what the interval really has, which differs from what was asked.

    Raises:
        ValueError: There are no values, or one is not finite.

    Source: Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    ordered = sorted(_checked(values))
    n, left_out = len(ordered), 0
    while left_out + 1 < (n + 1) / 2 and _kept(n, left_out + 1) >= confidence:
        left_out += 1
    return Interval(
        statistics.median(ordered), ordered[left_out], ordered[n - 1 - left_out], max(0.0, _kept(n, left_out))
    )


def _kept(n: int, left_out: int) -> float:
    """How often the median lies between the values that stay when so many are left out at either end."""
    return 1.0 - sum(math.comb(n, k) for k in range(left_out + 1)) / float(2 ** (n - 1))


@dataclasses.dataclass(frozen=True)
class Trend:
    """Whether values drift.

    Attributes:
        slope: Median of all slopes between two values, per place in the sequence.
        p: How often a sequence without a trend looks at least as trended.
    """

    slope: float
    p: float


def trend(values: Sequence[float]) -> Trend:
    """The trend of a sequence.

    Raises:
        ValueError: There are fewer than two values, or one is not finite.

    Source: Sen, J. Am. Stat. Assoc. 63 (1968) for the slope; Kendall, Rank Correlation Methods (1975) for p, from the
    exact numbers of orders with so many exchanges.
    """
    found = _checked(values)
    if len(found) < 2:
        raise ValueError("expected at least two values, received one")
    pairs = [(i, j) for i in range(len(found)) for j in range(i + 1, len(found))]
    slope = statistics.median((found[j] - found[i]) / (j - i) for i, j in pairs)
    score = sum((found[j] > found[i]) - (found[j] < found[i]) for i, j in pairs)
    exchanged = (len(pairs) - abs(score)) // 2
    counts = _orders(len(found))
    return Trend(slope, min(1.0, 2 * sum(counts[: exchanged + 1]) / sum(counts)))


def _orders(n: int) -> list[int]:
    """How many orders of n values have 0, 1, 2, ... exchanged pairs."""
    counts = [1]
    for size in range(2, n + 1):
        longer = [0] * (len(counts) + size - 1)
        for exchanged, count in enumerate(counts):
            for more in range(size):
                longer[exchanged + more] += count
        counts = longer
    return counts


def prediction_interval(values: Sequence[float], further: int = 1, confidence: float = 0.95) -> Interval:
    """Where the mean of further values of the same kind will lie, for values that are normally distributed.

    Args:
        values: At least two.
        further: How many values the mean is of.
        confidence: Between 0 and 1.

    Raises:
        ValueError: There are fewer than two values, or one is not finite.

    Source: Hahn and Meeker, Statistical Intervals (1991), section 4.7.
    """
    found = _checked(values)
    if len(found) < 2:
        raise ValueError("expected at least two values, received one")
    mean, deviation = statistics.fmean(found), statistics.stdev(found)
    half = t_quantile((1 + confidence) / 2, len(found) - 1) * deviation * math.sqrt(1 / further + 1 / len(found))
    return Interval(mean, mean - half, mean + half, confidence)


@functools.cache
def t_quantile(p: float, freedom: int) -> float:
    """The value below which Student's t lies with probability ``p``.

    Args:
        p: At least 0.5 and below 1.
        freedom: Degrees of freedom, 1 or more.
    """
    low, high = 0.0, 1.0
    while _t_below(high, freedom) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _t_below(t: float, freedom: int) -> float:
    """Distribution of Student's t for t >= 0: with t = sqrt(freedom) tan(a) its density is a power of cos(a)."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    angle = math.atan(t / math.sqrt(freedom))
    step = angle / _TAIL_STEPS
    inner = (math.cos(i * step) ** (freedom - 1) * (4 if i % 2 else 2) for i in range(1, _TAIL_STEPS))
    ends = 1 + math.cos(angle) ** (freedom - 1)
    return 0.5 + scale * step / 3 * (ends + sum(inner))


def _checked(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("expected at least one value, received none")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("expected finite values, received nan or infinity")
    return [float(value) for value in values]
