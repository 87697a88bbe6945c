"""What a bench concludes: figures, wins and the lack of them, and the band of the loss."""

from __future__ import annotations

import math
import random
from typing import Optional, Sequence

import pytest

from tests.pure.bench_results import BATCH, STEPS, entry, lap
from tfvolta.bench.comparison import compare, loss_band
from tfvolta.bench.measured import Epoch

ROUNDS = (1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02)
LOSSES = (1.0, 1.1, 0.95)


def scaled(factor: float) -> list[float]:
    return [factor * seconds for seconds in ROUNDS]


def pair(factor: float, losses: Sequence[Optional[float]] = LOSSES, batch: int = BATCH) -> tuple:  # type: ignore[type-arg]
    """A contender that takes so many times as long as the baseline, over three seeds."""
    reference = entry("base", *(lap(ROUNDS, loss, seed) for seed, loss in enumerate(LOSSES)))
    treated = entry("new", *(lap(scaled(factor), loss, seed) for seed, loss in enumerate(losses)), batch=batch)
    return treated, reference


def test_a_gain_in_the_band_is_a_win() -> None:
    found = compare(*pair(0.5))
    assert found.wins and found.throughput.estimate == pytest.approx(2.0) and found.n == 21
    assert found.throughput.low == found.throughput.high == pytest.approx(2.0)
    assert found.epoch_time.estimate == pytest.approx(0.5)
    assert "faster" in found.why[0] and "in the band" in found.why[1]


def test_a_drift_of_the_machine_does_not_hide_a_gain() -> None:
    drifting = [1.5**turn for turn in range(7)]
    reference = entry("base", *(lap(drifting, loss, seed) for seed, loss in enumerate(LOSSES)))
    treated = entry("new", *(lap([0.9 * s for s in drifting], loss, seed) for seed, loss in enumerate(LOSSES)))
    assert compare(treated, reference).wins
    noise = treated.figures.noise  # type: ignore[union-attr]
    assert "noisy" in noise.words and "drifts: epochs became" in noise.words and noise.drift_p < 0.001


def test_noise_alone_is_hardly_ever_a_win() -> None:
    source, wins = random.Random(0), 0
    for _ in range(300):
        both = []
        for name in ("new", "base"):
            laps = [lap([source.lognormvariate(0, 0.2) for _ in range(7)], loss, s) for s, loss in enumerate(LOSSES)]
            both.append(entry(name, *laps))
        wins += compare(both[0], both[1]).wins
    assert wins <= 300 * 0.03


def test_a_slower_one_is_called_slower() -> None:
    found = compare(*pair(1.3))
    assert not found.wins and found.why[0].startswith("slower")


def test_a_gain_below_the_least_gain_is_no_win() -> None:
    assert compare(*pair(0.98)).wins
    found = compare(*pair(0.98), least_gain=0.05)
    assert not found.wins and "no gain shown above 1.050" in found.why[0]


def test_a_gain_in_some_processes_only_is_no_win() -> None:
    reference = entry("base", *(lap(ROUNDS, loss, seed) for seed, loss in enumerate(LOSSES)))
    laps = [lap(scaled(factor), loss, seed) for seed, (factor, loss) in enumerate(zip((0.5, 0.5, 1.01), LOSSES))]
    found = compare(entry("new", *laps), reference)
    assert not found.wins


def test_few_rounds_prove_nothing() -> None:
    reference, treated = entry("base", lap([1.0, 1.0, 1.0])), entry("new", lap([0.5, 0.5, 0.5]))
    found = compare(treated, reference)
    assert not found.wins and "too few rounds" in found.why[0]


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (0.05, True), (0.6, False), (-0.6, False)])
def test_a_loss_outside_the_band_is_no_win_on_either_side(shift: float, holds: bool) -> None:
    found = compare(*pair(0.5, [loss + shift for loss in LOSSES]))
    assert found.band.holds is holds and found.wins is holds
    assert ("in the band" if holds else "outside the band") in found.band.words


def test_with_more_examples_a_step_a_lower_loss_is_sound() -> None:
    found = compare(*pair(0.9, [loss - 0.6 for loss in LOSSES], batch=2 * BATCH))
    assert found.band.holds and found.wins and "more examples a step" in found.band.words
    assert found.throughput.estimate == pytest.approx(2 / 0.9)


def test_a_loss_that_is_not_finite_is_no_win() -> None:
    found = compare(*pair(0.5, [1.0, None, 1.0]))
    assert not found.wins and "not finite" in found.band.words


def test_one_seed_gives_no_band_and_no_win() -> None:
    found = compare(entry("new", lap(scaled(0.5))), entry("base", lap(ROUNDS)))
    assert not found.wins and found.band.holds is None and "--seeds 0,1,2" in found.band.words


def test_seeds_that_change_nothing_leave_room_for_rounding() -> None:
    reference = entry("base", *(lap(ROUNDS, 1.0, seed) for seed in range(3)))
    assert loss_band(entry("new", *(lap(ROUNDS, 1.000001, seed) for seed in range(3))), reference).holds
    assert not loss_band(entry("new", *(lap(ROUNDS, 1.001, seed) for seed in range(3))), reference).holds


def test_only_processes_of_one_seed_are_paired() -> None:
    reference = entry("base", *(lap(ROUNDS, 1.0, seed) for seed in (0, 1, 2)))
    treated = entry("new", lap(scaled(0.5), 1.0, 2), lap(scaled(0.5), 1.0, 0))
    found = compare(treated, reference)
    assert found.n == 14 and found.band.seeds == (2, 0)


def test_figures_follow_from_the_epochs() -> None:
    found = entry("a", lap([2.0] * 7, host_peak_bytes=100), lap([2.0] * 7, seed=1, host_peak_bytes=300)).figures
    assert found is not None
    assert found.n == 14 and found.examples_per_second.estimate == STEPS * BATCH / 2
    assert found.step_seconds.estimate == 0.2 and found.epoch_seconds_mad == 0
    assert found.first_epoch_seconds == 3.0 and found.compile_seconds == 1.0 and found.start_seconds == 5.0
    assert found.host_peak_bytes == 300 and found.device_peak_bytes is None and found.mfu is None
    assert found.energy_unknown.startswith("NOT_APPLICABLE")


def test_utilisation_takes_the_peak_of_the_card_and_of_the_format() -> None:
    about = {"devices": ["Tesla V100-SXM2-32GB"], "multiply_adds": 10**12, "tf32": True, "compute_dtype": "float16"}
    found = entry("a", lap([1.0] * 7, **about)).figures
    assert found is not None and found.mfu == pytest.approx(6e12 / 0.1 / 125e12) and "data sheet" in found.mfu_of
    unknown = entry("a", lap([1.0] * 7, **{**about, "devices": ["Tesla T4"]})).figures
    assert unknown is not None and unknown.mfu is None and "Tesla T4" in unknown.mfu_unknown
    missing = entry(
        "a", lap([1.0] * 7, **{**about, "multiply_adds": None, "multiply_adds_unknown": "py_function"})
    ).figures
    assert missing is not None and "py_function" in missing.mfu_unknown


def test_ranks_that_know_of_themselves_alone_are_counted_together() -> None:
    about = {"devices": ["Tesla V100-SXM2-32GB"], "multiply_adds": 10**12, "tf32": False, "compute_dtype": "float16"}
    found = entry("a", lap([1.0] * 7, **about), workers=4).figures
    assert found is not None and found.replicas == 4 and found.multiply_adds == 4 * 10**12
    assert found.mfu == pytest.approx(6e12 / 0.1 / 125e12)


def test_a_loss_of_json_that_is_no_number_is_none() -> None:
    assert Epoch(epoch=0, seconds=1.0, train_seconds=1.0, steps=1, loss="nan").loss is None
    assert Epoch(epoch=0, seconds=1.0, train_seconds=1.0, steps=1, loss=math.inf).loss is None
