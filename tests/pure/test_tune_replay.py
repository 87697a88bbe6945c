"""Searches replayed on grids that were measured: what they find with a quarter of the trials."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pure.recorded_context import H200, machine
from tfvolta.errors import TuneError
from tfvolta.tune.grid import Grid, GridAxis, GridPoint, read_grid, write_grid
from tfvolta.tune.replay import main, replay

ROOT = Path(__file__).resolve().parents[2]
GRIDS = sorted((ROOT / "benchmarks" / "grid" / "results").glob("*.json"))
WHOLE = [path for path in GRIDS if not read_grid(path).missing()]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_a_quarter_of_the_trials_finds_nearly_the_best(path: Path) -> None:
    """On a CPU that others use too, points lie nearer together than they can be told apart: there no choice may be
    worse as far as the grid can tell. A GPU host is quiet enough for the plain share."""
    grid = read_grid(path)
    result = replay(grid)
    assert len(result.found) == 20 and result.points == 24
    assert result.most_trials <= 6
    assert result.least_most >= 0.98, result.sentence()
    assert result.least_share >= (0.98 if grid.facts.gpus else 0.85), result.sentence()


def test_there_is_a_whole_grid() -> None:
    assert WHOLE, "benchmarks/grid/record.py records one"


def made(rates: dict[str, float], failing: str = "") -> Grid:
    """A grid with the product of some factors, a little noise, and one word that does not compile."""
    axes = tuple(GridAxis(key=word.partition("=")[0], options=((), (word,))) for word in rates)
    grid = Grid(
        model="made up",
        facts=machine(H200).model_copy(update={"tensorflow": None}),
        overrides=("mixed_precision.policy=float32", "xla.jit=off", "kernels=null"),
        traits={"kinds": {"Dense": 3}, "batch": 32, "compiled": False, "half": False},
        axes=axes,
    )
    chance = random.Random(0)
    for words in grid.combinations():
        rate = 100.0
        for word in words:
            rate *= rates[word]
        blocks = tuple((32 / (rate * chance.gauss(1, 0.01)), 1, 32) for _ in range(8))
        failed = GridPoint(words=words, ending="compile timeout", reason="not done")
        grid = grid.with_point(failed if failing in words else GridPoint(words=words, ending="measured", blocks=blocks))
    return grid


def test_where_the_expert_is_wrong_trials_correct_it() -> None:
    """Half precision and XLA are expected to pay; here both cost, and only launch threads pay."""
    costly = {"mixed_precision.policy=mixed_float16": 0.6, "xla.jit=model": 0.7, "fit.steps_per_execution=10": 1.0}
    rates = {**costly, "devices.gpu_thread_mode=gpu_private": 1.2}
    result = replay(made(rates), range(5), trials=8)
    assert result.least_share >= 0.98, result.sentence()


def test_a_setting_that_does_not_compile_costs_one_trial() -> None:
    rates = {"xla.jit=model": 2.0, "fit.steps_per_execution=10": 1.3, "mixed_precision.policy=mixed_float16": 1.5}
    result = replay(made(rates, "xla.jit=model"), range(5), trials=4)
    assert result.least_share >= 0.98, result.sentence()


def test_seeds_see_other_noise_and_the_same_seed_the_same() -> None:
    grid = made({"devices.gpu_thread_mode=gpu_private": 1.02, "fit.steps_per_execution=10": 1.02})
    assert replay(grid, [1, 2]) == replay(grid, [1, 2])
    chosen = {found.words for found in replay(grid, range(10), trials=4).found}
    assert len(chosen) > 1


def test_a_grid_with_gaps_is_no_judge(tmp_path: Path) -> None:
    grid = made({"xla.jit=model": 2.0})
    path = tmp_path / "grid.json"
    write_grid(grid.model_copy(update={"points": grid.points[:1]}), path)
    assert read_grid(path).missing() == [("xla.jit=model",)]
    with pytest.raises(TuneError, match=r"missing among others: xla.jit=model"):
        main([str(path)])
    path.write_text('{"model": "x"}')
    with pytest.raises(TuneError, match="The grid cannot be read"):
        read_grid(path)


def test_the_command_says_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grid.json"
    write_grid(made({"xla.jit=model": 2.0, "fit.steps_per_execution=10": 1.1}), path)
    assert main([str(path), "--seeds", "2", "--trials", "3"]) == 0
    assert "made up on keras3: 100.0 % of the best of 4 points at worst" in capsys.readouterr().out
    assert main([str(path), "--seeds", "2", "--trials", "1"]) == 1
