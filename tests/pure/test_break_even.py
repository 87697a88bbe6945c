"""When a compilation pays off, from times that were measured; and what is said of compilations that do not end."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tfvolta.callbacks.break_even import StepTime, break_even, step_time
from tfvolta.callbacks.compilation import Compilation, alarm, changing


def time(seconds: float, error: float = 0.0) -> StepTime:
    return StepTime(seconds, error, "run before")


def test_it_pays_off_after_what_it_cost_over_what_it_saves() -> None:
    found = break_even(41.2, time(0.05), time(0.15), 300)
    assert found["steps"] == pytest.approx(412)
    assert found["text"].startswith("pays off after 412 steps (412 to 412), this run has 300; ")
    assert "50 ms compiled and 150 ms without XLA (run before), compiling took 41.2 s" in found["text"]


def test_the_errors_of_both_times_are_in_the_range() -> None:
    found = break_even(10.0, time(0.1, 0.003), time(0.2, 0.004), None)
    assert found["error_seconds_per_step"] == pytest.approx(0.01)  # twice the root of 0.003^2 + 0.004^2
    assert (found["steps_low"], found["steps_high"]) == (pytest.approx(10 / 0.11), pytest.approx(10 / 0.09))
    assert "this run has" not in found["text"]


@pytest.mark.parametrize(
    ("compiled", "plain", "said"),
    [
        (time(0.1), time(0.09), "does not pay off: the compiled step is slower"),
        (time(0.1, 0.01), time(0.105, 0.01), "does not pay off: the compiled step is no faster"),
        (None, time(0.1), "too few steps were timed"),
        (time(0.1), None, "make one: xla.jit=off"),
    ],
)
def test_what_is_not_known_or_not_so_is_said(
    compiled: Optional[StepTime], plain: Optional[StepTime], said: str
) -> None:
    found = break_even(10.0, compiled, plain, 100)
    assert said in found["text"] and not found.get("steps")


def test_the_time_of_a_step_is_that_of_the_wall_clock() -> None:
    summary: dict[str, Any] = {"timed_steps": 100, "timed_seconds": 5.0, "step_seconds_mad": 0.01, "n": 100}
    found = step_time(summary, "this run")
    assert found == StepTime(0.05, pytest.approx(0.0012533), "this run")
    assert step_time({**summary, "timed_steps": 4}, "this run") is None
    assert step_time({**summary, "step_seconds_mad": None}, "this run") is None
    assert step_time({}, "this run") is None


def entry(epoch: int, step: int, seconds: float, count: int = 1) -> Compilation:
    return Compilation("train", epoch, step, seconds, False, True, "shapes", ({"x": (1,)},) * count)


def test_the_alarm_names_the_part_its_shapes_and_the_line() -> None:
    seen = [{"x": (16, length, 3), "y": (16, 1)} for length in (5, 7, 9, 11, 13)]
    text = alarm([entry(0, 0, 2.0), entry(1, 3, 1.5)], seen, 0.5)
    assert "2 times (2.5 s), last in epoch 1, step 3" in text
    assert "x came as (16, 5, 3), (16, 7, 3), (16, 9, 3), (16, 11, 3) and 1 more" in text
    assert "y" not in changing(seen) and "Pad x to one length" in text


def test_rows_have_another_remedy_than_lengths() -> None:
    text = alarm([entry(0, 0, 2.0)], [{"x": (16, 3), "y": (16,)}, {"x": (8, 3), "y": (8,)}], None)
    assert "xla.remainder: drop or pad" in text and "padded_batches" in text


def test_shapes_that_nobody_sees_are_not_made_up() -> None:
    text = alarm([entry(0, 0, 2.0)], [], None)
    assert "by its time" in text and "not seen" in text
