"""Weights that have grown out of all proportion are told from a layer that overflows."""

from __future__ import annotations

import numpy as np
import pytest

from tfvolta.callbacks.weight_growth import ENORMOUS, largest, said_of
from tfvolta.errors import NumericsError


def test_the_largest_weight_that_is_a_number() -> None:
    arrays = [np.array([1.0, -7.0]), np.array([np.inf, np.nan, 3.0], "float32"), np.array([10**9]), np.zeros((0, 3))]
    assert largest(arrays) == 7.0
    assert largest([]) == 0.0 and largest([np.array([np.nan])]) == 0.0


@pytest.mark.parametrize(("size", "is_said"), [(1.0, False), (ENORMOUS, False), (65536.0, True), (3e28, True)])
def test_enormous_weights_name_the_learning_rate(size: float, is_said: bool) -> None:
    said, fix = said_of(size, 1e30)
    assert bool(said) is bool(fix) is is_said
    if is_said:
        assert f"{size:.3g}" in said and "learning rate" in fix and "1e+30" in fix
        assert "learning rate" in said_of(size, None)[1]


def test_an_alarm_ends_a_run_as_a_failed_check_does() -> None:
    assert NumericsError("").exit_code == 1
