from __future__ import annotations

import math
from typing import Callable, Sequence

import pytest

np = pytest.importorskip("numpy")

from tfvolta.measure.statistics import (  # noqa: E402
    Interval,
    bootstrap_median,
    iqr,
    mad,
    median,
    paired_difference,
    paired_ratio,
)


def test_known_figures() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    assert median(values) == 3.0
    assert iqr(values) == 2.0
    assert mad(values) == pytest.approx(1.4826)


def test_mad_of_normal_values_is_their_deviation() -> None:
    values = np.random.default_rng(1).normal(5.0, 2.0, 100_000)
    assert mad(list(values)) == pytest.approx(2.0, rel=0.02)


def test_bootstrap_covers_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    covered = 0
    for seed in range(200):
        interval = bootstrap_median(list(random.exponential(1.0, 40)), 0.9, resamples=400, seed=seed)
        assert interval.low <= interval.estimate <= interval.high
        covered += interval.low <= math.log(2) <= interval.high
    assert 0.84 <= covered / 200 <= 0.96


def test_bootstrap_is_reproducible_and_shrinks_with_more_values() -> None:
    values = list(np.random.default_rng(3).normal(0.0, 1.0, 400))
    wide, narrow = bootstrap_median(values[:25]), bootstrap_median(values)
    assert bootstrap_median(values) == narrow
    assert narrow.high - narrow.low < wide.high - wide.low


def test_constant_values_have_an_interval_of_no_width() -> None:
    assert bootstrap_median([2.0] * 5) == Interval(2.0, 2.0, 2.0, 0.95)
    assert bootstrap_median([2.0]).to_json() == {"estimate": 2.0, "low": 2.0, "high": 2.0, "confidence": 0.95}


def test_pairs_take_drift_out() -> None:
    drift = [1.0, 2.0, 4.0, 8.0]
    assert paired_ratio([1.1 * d for d in drift], drift).estimate == pytest.approx(1.1)
    difference = paired_difference([d + 0.5 for d in drift], drift)
    assert (difference.low, difference.estimate, difference.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("figure", [median, mad, iqr, bootstrap_median])
@pytest.mark.parametrize(("values", "message"), [([], "none"), ([1.0, math.nan], "nan"), ([math.inf], "infinity")])
def test_unusable_values(figure: Callable[[Sequence[float]], object], values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure(values)


def test_unusable_pairs_and_confidence() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="positive"):
        paired_ratio([1.0], [0.0])
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_median([1.0], confidence=95)
