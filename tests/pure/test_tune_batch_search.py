"""The search for a batch size, against memories and speeds that are known."""

from __future__ import annotations

from typing import Callable, Optional

import pytest

from tfvolta.tune.batch_finder import Allowance, find, start_batch
from tfvolta.tune.batch_search import BatchSearch
from tfvolta.tune.trial import Ending, Trial
from tfvolta.tune.trial_request import TrialRequest

REQUEST = TrialRequest(None, (), "train.py", (), 0, 5, 2, "")


def machine(most: int, ending: Ending = Ending.OUT_OF_MEMORY, rate: Optional[Callable[[int], float]] = None) -> object:
    """Runs trials on a machine on which batches of so many rows fit."""

    def run(request: TrialRequest) -> Trial:
        if request.batch > most:
            return Trial(request.batch, ending, "as told")
        return Trial(request.batch, Ending.FITS, steps=5, examples_per_second=rate(request.batch) if rate else 1.0)

    return run


def found(most: int, **arguments: object) -> tuple[Optional[int], list[int]]:
    """The largest batch, and the sizes that were tried."""
    allowance = Allowance(start=int(str(arguments.pop("start", 32))), most=arguments.pop("bound", None))  # type: ignore[arg-type]
    result = find(REQUEST, allowance, machine(most, **arguments), lambda trial: None)  # type: ignore[arg-type]
    return result.largest, [each.batch for each in result.trials]


@pytest.mark.parametrize("most", [8, 9, 24, 31, 32, 33, 200, 1023, 1024, 5000])
@pytest.mark.parametrize("start", [1, 8, 32, 100, 4096])
def test_the_largest_multiple_of_eight_that_fits_is_found(most: int, start: int) -> None:
    largest, tried = found(most, start=start)
    assert largest == most // 8 * 8
    assert all(size % 8 == 0 for size in tried) and len(tried) == len(set(tried))


def test_doubling_then_halving() -> None:
    assert found(200)[1] == [32, 64, 128, 256, 192, 224, 208, 200]


def test_a_bound_is_never_passed() -> None:
    assert found(10**6, bound=100) == (96, [32, 64, 96])


def test_nothing_fits() -> None:
    largest, tried = found(0)
    assert largest is None and tried == [32, 16, 8]


def test_a_crash_is_tried_again_once_and_then_bounds() -> None:
    largest, tried = found(64, ending=Ending.CRASH)
    assert largest == 64 and tried == [32, 64, 128, 128, 96, 96, 80, 80, 72, 72]


def test_a_crash_that_passes_does_not_bound() -> None:
    search = BatchSearch(32, 64)
    search.take(Trial(32, Ending.FITS))
    search.take(Trial(64, Ending.CRASH, "a neighbour"))
    assert search.next() == 64
    search.take(Trial(64, Ending.FITS))
    assert search.next() is None and search.largest is not None and search.largest.batch == 64


def test_a_script_that_crashes_at_every_size_is_not_tried_for_ever() -> None:
    assert found(0, ending=Ending.CRASH)[1] == [32, 16]


def test_a_refusal_ends_the_search() -> None:
    assert found(0, ending=Ending.REFUSED) == (None, [32])


def test_the_fastest_is_not_the_largest() -> None:
    rates = {32: 100.0, 64: 180.0, 128: 240.0, 256: 200.0}
    run = machine(256, rate=lambda batch: rates.get(batch, 150.0))
    result = find(REQUEST, Allowance(32, 512), run, lambda trial: None)  # type: ignore[arg-type]
    assert result.largest == 256 and result.fastest == 128


def test_of_equal_speeds_the_smallest_is_named() -> None:
    run = machine(256, rate=lambda batch: 100.0 if batch < 64 else 200.0 + batch / 1000)
    result = find(REQUEST, Allowance(32, 256), run, lambda trial: None)  # type: ignore[arg-type]
    assert result.largest == 256 and result.fastest == 64


def test_the_number_of_trials_and_the_time_are_bounded() -> None:
    result = find(REQUEST, Allowance(8, trials=3), machine(10**9), lambda trial: None)  # type: ignore[arg-type]
    assert len(result.trials) == 3 and "3 trials" in result.limit
    result = find(REQUEST, Allowance(8, seconds=0.0), machine(10**9), lambda trial: None)  # type: ignore[arg-type]
    assert "0 s" in result.limit


def test_what_limits_is_said() -> None:
    result = find(REQUEST, Allowance(64), machine(100, Ending.LARGER_THAN_DATA), lambda trial: None)  # type: ignore[arg-type]
    assert result.largest == 96
    assert "104: batch larger than the data, as told" in result.limit


def test_a_first_size_from_an_estimate() -> None:
    assert start_batch(lambda batch: 10 * batch, 1000) == 32  # 320 of 500
    assert start_batch(lambda batch: 10**6, 1000) == 8
    assert start_batch(lambda batch: None, 1000) == 32
