"""From clocked steps to the share that is spent waiting for data, and to what would help first."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tfvolta.callbacks.input_figures import InputFigures, remedy


def figures(step: float, waited: float, held: Any = None, data: Any = None) -> InputFigures:
    return InputFigures(step, waited, 20, held, data, 10 if held is not None else 0)


@pytest.mark.parametrize(
    ("found", "share", "bound"),
    [
        (figures(0.100, 0.095, 0.005, 0.095), 0.95, "input"),
        (figures(0.100, 0.095), 0.95, "input"),  # nothing could be held
        (figures(0.050, 0.030, 0.050, 0.030), 0.0, "compute"),  # a device worked while the host waited
        (figures(0.100, 0.001, 0.020, 0.001), 0.01, "compute"),  # a slow end of the epoch is no wait for data
        (figures(0.100, 0.050, 0.050, 0.050), 0.5, "input"),  # made and used in turn
        (figures(0.100, 0.050, 0.110, 0.050), 0.0, "compute"),  # noise below nothing
        (figures(0.001, 0.0004, 0.0006, 0.0004), 0.4, "compute"),  # what handing over a batch costs
        (figures(0.010, 0.005, 0.005, 0.0001), 0.5, "compute"),  # data alone come a hundred times as fast
        (figures(0.0, 0.0), 0.0, "compute"),
    ],
)
def test_the_share_is_what_a_step_would_lose_if_data_cost_nothing(
    found: InputFigures, share: float, bound: str
) -> None:
    assert found.share == pytest.approx(share) and found.bound == bound
    assert found.to_json()["bound"] == bound and found.to_json()["share"] == found.share
    assert f"{100 * share:.0f} % of the step time" in found.sentence()
    assert found.sentence().startswith(f"{bound.title()}-bound")


def test_a_wait_in_which_nothing_computes_is_lost_whatever_other_steps_took() -> None:
    assert InputFigures(0.100, 0.090, 20, 0.080, 0.090, 2, overlaps=False).share == pytest.approx(0.9)


def pipeline(**parts: Any) -> Any:
    fields = ("serial_maps", "parallel_maps", "python_maps", "prefetched", "cached", "generator", "random")
    return types.SimpleNamespace(**{**dict.fromkeys(fields, 0), **parts})


SLOW, EVEN = figures(0.100, 0.095, 0.005, 0.095), figures(0.100, 0.050, 0.050, 0.050)


@pytest.mark.parametrize(
    ("made_of", "source", "found", "first"),
    [
        (pipeline(serial_maps=1), "other", EVEN, "dataset.prefetch("),
        (pipeline(serial_maps=1), "other", SLOW, "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE)"),
        (pipeline(serial_maps=1, prefetched=True), "other", EVEN, "dataset.map(..., num_parallel_calls="),
        (pipeline(serial_maps=1, python_maps=1), "other", SLOW, "Python code in it computes one call at a time"),
        (pipeline(parallel_maps=1), "other", SLOW, "dataset.prefetch("),
        (pipeline(parallel_maps=1, prefetched=True), "other", SLOW, "dataset.cache()"),
        (pipeline(generator=True, prefetched=True), "other", SLOW, "a Python generator"),
        (pipeline(generator=True), "generator", SLOW, "a Python generator"),
        (pipeline(generator=True), "sequence", SLOW, "workers=4"),
    ],
)
def test_the_first_remedy_is_the_one_that_brings_most(made_of: Any, source: str, found: Any, first: str) -> None:
    assert first in remedy(made_of, source, found)


def test_nothing_is_advised_where_nothing_is_seen() -> None:
    assert remedy(pipeline(parallel_maps=1, prefetched=True, cached=True), "other", SLOW) == ""
    assert remedy(pipeline(parallel_maps=1, prefetched=True, random=True), "other", SLOW) == ""
