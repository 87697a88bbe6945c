"""The mean over the examples of all ranks, from the mean of each."""

from __future__ import annotations

import math

import pytest

from tfvolta.callbacks.average_metrics import average


def test_ranks_count_with_their_examples() -> None:
    assert average([1.0, 4.0], [30, 10]) == pytest.approx(1.75)


def test_unknown_numbers_count_alike() -> None:
    assert average([1.0, 4.0], [30, None]) == 2.5
    assert average([1.0, 4.0], [None, None]) == 2.5
    assert average([1.0, 4.0], [0, 0]) == 2.5


def test_a_rank_without_examples_says_nothing() -> None:
    assert average([1.0, math.nan], [8, 0]) == 1.0


def test_equal_values_stay_as_they_are() -> None:
    assert average([0.1, 0.1, 0.1], [3, 5, 7]) == 0.1


def test_what_is_not_finite_stays_so() -> None:
    assert math.isnan(average([1.0, math.nan], [8, 8]))
    assert average([1.0, math.inf], [8, 8]) == math.inf
