"""The search for a batch size, against memories and speeds that are known."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Callable, Optional

import pytest

from tfvolta.cli.batch_start import first_size
from tfvolta.errors import EstimateError
from tfvolta.tune.batch_finder import Allowance, find
from tfvolta.tune.batch_search import BatchSearch
from tfvolta.tune.first_size import growth_of, start_batch
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


def data(rows: int, memory: int = 10**9) -> object:
    """Runs trials on a machine with so many rows of data, on which batches up to a size fit."""

    def run(request: TrialRequest) -> Trial:
        if request.batch > rows:
            return Trial(request.batch, Ending.LARGER_THAN_DATA, f"fit is given {rows} rows", rows=rows)
        return Trial(request.batch, Ending.FITS if request.batch <= memory else Ending.OUT_OF_MEMORY, "as told")

    return run


@pytest.mark.parametrize(
    ("rows", "memory", "start", "largest", "tried"),
    [
        (640, 10**9, 32, 640, [32, 64, 128, 256, 512, 1024, 640]),
        (645, 10**9, 32, 640, [32, 64, 128, 256, 512, 1024, 640]),
        (640, 600, 32, 600, [32, 64, 128, 256, 512, 1024, 640, 576, 608, 592, 600]),
        (640, 10**9, 4096, 640, [4096, 640]),
        (512, 10**9, 256, 512, [256, 512, 1024]),
        (5, 10**9, 32, None, [32]),
    ],
)
def test_the_rows_of_the_data_bound_the_search(
    rows: int, memory: int, start: int, largest: Optional[int], tried: list[int]
) -> None:
    result = find(REQUEST, Allowance(start), data(rows, memory), lambda trial: None)  # type: ignore[arg-type]
    assert result.largest == largest and [each.batch for each in result.trials] == tried
    assert (result.limit == f"the data: fit is given {rows} rows") == (memory > rows)


def test_a_script_without_fit_is_not_said_to_fit() -> None:
    def run(request: TrialRequest) -> Trial:
        return Trial(request.batch, Ending.REFUSED, "the script never called model.fit")

    result = find(REQUEST, Allowance(32), run, lambda trial: None)
    assert result.largest is None and result.limit == "32 was not tried: the script never called model.fit"


def test_what_limits_is_said() -> None:
    result = find(REQUEST, Allowance(64), machine(100, Ending.LARGER_THAN_DATA), lambda trial: None)  # type: ignore[arg-type]
    assert result.largest == 96
    assert "104: batch larger than the data, as told" in result.limit


def estimated(row_mb: int, fixed_mb: int = 100, **more: object) -> dict[str, object]:
    """Estimates of two sizes, as the process that looks at a script gives them."""
    sizes = {
        batch: {"batch": batch, "device": (fixed_mb + row_mb * batch) * 2**20, "compiled": False} for batch in (32, 16)
    }
    return {
        "memory": {"plain": sizes[32], "compiled": {**sizes[32], **more}},
        "compared": {"plain": sizes[16], "compiled": {**sizes[16], **more}},
    }


@pytest.mark.parametrize(("row_mb", "miss"), [(10, 1.0), (10, 0.9), (10, 1.1), (4, 1.1), (90, 1.0), (500, 1.0)])
def test_the_first_trial_is_near_the_bound_where_an_estimate_is_made(row_mb: int, miss: float) -> None:
    limit = 16_000
    most = int((limit - 100) / (row_mb * miss))  # what fits in truth
    first = start_batch(growth_of(estimated(row_mb), "off"), limit * 2**20)
    result = find(REQUEST, Allowance(first.size, stride=first.stride), machine(most), lambda trial: None)  # type: ignore[arg-type]
    tried = [each.batch for each in result.trials]
    assert result.largest == most // 8 * 8
    assert tried[0] <= most and (tried[0] >= 0.7 * most or most < 32)
    plain = find(REQUEST, Allowance(32), machine(most), lambda trial: None)  # type: ignore[arg-type]
    assert len(tried) <= len(plain.trials)


@pytest.mark.parametrize("most", [8, 24, 96, 100, 184, 192, 200, 208, 400, 5000])
def test_a_stride_finds_the_same_from_below_and_from_above(most: int) -> None:
    allowance = Allowance(192, stride=24)
    result = find(REQUEST, allowance, machine(most), lambda trial: None)  # type: ignore[arg-type]
    tried = [each.batch for each in result.trials]
    assert result.largest == most // 8 * 8 and len(tried) == len(set(tried))
    bounded = find(REQUEST, Allowance(192, 200, stride=24), machine(10**6), lambda trial: None)  # type: ignore[arg-type]
    assert [each.batch for each in bounded.trials] == [192, 200]


def test_a_step_that_may_be_compiled_or_not_counts_as_the_larger() -> None:
    found = estimated(10)
    found["memory"]["compiled"] = {"batch": 32, "device": 420 * 2**19}  # type: ignore[index]
    found["compared"]["compiled"] = {"batch": 16, "device": 260 * 2**19}  # type: ignore[index]
    compiled, plain, either = (growth_of(found, jit) for jit in ("model", "off", "auto"))
    assert compiled is not None and plain is not None and either == plain
    assert compiled.row_bytes == 5 * 2**20 and compiled.fixed_bytes == 50 * 2**20


def test_replicas_share_a_batch_and_nothing_fits_is_still_tried() -> None:
    growth = growth_of(estimated(10), "off")
    assert growth is not None
    assert start_batch(growth, 16_000 * 2**20, replicas=4).size == pytest.approx(
        4 * start_batch(growth, 16_000 * 2**20).size, abs=32
    )
    assert start_batch(growth, 64 * 2**20).size == 8


def test_a_small_model_begins_no_further_than_data_usually_go() -> None:
    growth = growth_of(estimated(1), "off")
    assert growth is not None
    first = start_batch(growth, 80_000 * 2**20)
    assert (first.size, first.stride) == (4096, None) and "4096 rows take 4,196 of 80,000 MiB" in first.reason


class Machine:
    """Facts of a machine with one GPU, or without."""

    def __init__(self, memory_mb: Optional[int] = None) -> None:
        self.gpus = [] if memory_mb is None else [types.SimpleNamespace(memory_mb=memory_mb)]


SETTINGS = types.SimpleNamespace(get=lambda key: {"xla.jit": "off"}.get(key))


def test_the_command_begins_where_the_estimate_says(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, object]] = []

    def look(request: dict[str, object], seconds: float) -> dict[str, object]:
        asked.append({**request, "seconds": seconds})
        return estimated(10)

    request = dataclasses.replace(REQUEST, arguments=("--epochs", "3"), overrides=("xla.jit=off",))
    first = first_size(request, SETTINGS, 60.0, look, Machine(16_000))
    assert first.size == 1344 and first.stride == 168  # 0.85 of 16,000 MiB
    assert "1344 rows take 13,540 of 16,000 MiB" in capsys.readouterr().err
    (wanted,) = asked
    assert wanted["arguments"] == ("--epochs", "3") and wanted["compare_half"] and wanted["seconds"] == 60.0


def _fails(request: object, seconds: float) -> dict[str, object]:
    raise EstimateError("The script could not be looked at.", [])


@pytest.mark.parametrize(
    ("look", "memory_mb", "why"),
    [
        (_fails, 16_000, "could not be looked at"),
        (lambda request, seconds: {"memory": {}}, 16_000, "without 'plain'"),
        (lambda request, seconds: estimated(0), 16_000, "does not grow"),
        (_fails, None, "there is no GPU"),
    ],
)
def test_the_search_is_as_ever_without_an_estimate(
    look: Any, memory_mb: Optional[int], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_size(REQUEST, SETTINGS, 60.0, look, Machine(memory_mb))
    assert (first.size, first.stride) == (32, None) and why in capsys.readouterr().err
    result = find(REQUEST, Allowance(first.size, stride=first.stride), machine(200), lambda trial: None)  # type: ignore[arg-type]
    assert [each.batch for each in result.trials] == found(200)[1]
