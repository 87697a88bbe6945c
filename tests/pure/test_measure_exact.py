"""Intervals of few values: how often they hold the truth, and values from published tables."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from tfvolta.measure.exact import prediction_interval, sign_interval, t_quantile, trend


@pytest.mark.parametrize(
    ("n", "left_out", "confidence"),
    # Conover (1999), table A3: the binomial distribution with p = 0.5.
    [(5, 0, 0.9375), (6, 0, 0.96875), (7, 0, 0.984375), (8, 0, 0.9921875), (9, 1, 0.9609375), (20, 5, 0.9586)],
)
def test_the_interval_lies_between_the_values_of_the_table(n: int, left_out: int, confidence: float) -> None:
    found = sign_interval([float(value) for value in range(n)])
    assert (found.low, found.high) == (left_out, n - 1 - left_out)
    assert found.confidence == pytest.approx(confidence, abs=1e-4)


@pytest.mark.parametrize("n", [5, 7, 9, 15])
def test_the_interval_holds_the_median_as_often_as_it_says(n: int) -> None:
    source, held, trials = random.Random(n), 0, 4000
    for _ in range(trials):
        # Skewed, with outliers: nothing normal about it. The median of a log-normal is 1.
        found = sign_interval([source.lognormvariate(0, 1) for _ in range(n)])
        held += found.low <= 1 <= found.high
    assert held / trials == pytest.approx(found.confidence, abs=0.02)


def test_one_value_says_nothing() -> None:
    assert sign_interval([3.0]).confidence == 0


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_values_that_are_no_numbers_are_refused(values: list[float]) -> None:
    for function in (sign_interval, trend, prediction_interval):
        with pytest.raises(ValueError, match="expected"):
            function(values)


@pytest.mark.parametrize(
    # NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
    ("p", "freedom", "t"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.95, 10, 1.812),
        (0.975, 30, 2.042),
        (0.995, 5, 4.032),
    ],
)
def test_quantiles_are_those_of_the_table(p: float, freedom: int, t: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(t, abs=6e-4)


def test_a_prediction_interval_holds_the_next_mean_as_often_as_it_says() -> None:
    source, held, trials = random.Random(1), 0, 1500
    for _ in range(trials):
        interval = prediction_interval([source.gauss(2, 0.3) for _ in range(3)], further=3)
        held += interval.low <= statistics.fmean(source.gauss(2, 0.3) for _ in range(3)) <= interval.high
    assert held / trials == pytest.approx(0.95, abs=0.02)


def test_a_trend_is_found_with_its_exact_probability() -> None:
    found = trend([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.slope == 1 and found.p == pytest.approx(2 / math.factorial(5))


def test_noise_is_a_trend_as_often_as_its_probability_says() -> None:
    source = random.Random(2)
    found = [trend([source.random() for _ in range(9)]).p < 0.05 for _ in range(2000)]
    assert 0.02 < statistics.fmean(found) < 0.06
