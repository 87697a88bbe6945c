"""What a run is held to: which earlier run, what may be compared, and where it is left."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.pure.history_runs import TUNED, Project, fit, measured
from tfvolta.config.guarding import Guard
from tfvolta.history.baseline import Baseline, band_of, find_baseline
from tfvolta.history.figures import FitFigures
from tfvolta.history.holding import Holding
from tfvolta.history.pace import WINDOWS, Pace


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def earlier(losses: Optional[dict[int, float]] = None, rate: float = 100.0, **reasons: str) -> Baseline:
    figures = FitFigures(rate, 16.0, 60.0, {0: 0.8, 1: 0.4} if losses is None else losses, 7)
    return Baseline("run-1", Path("runs/run-1"), (figures,), **reasons)


def held(asked: Optional[Guard] = None, baseline: Optional[Baseline] = None, seed: Optional[int] = 7) -> Holding:
    holding = Holding(asked or Guard(), baseline or earlier())
    holding.start_fit(1, seed)
    return holding


def paced(rates: list[float], every: int = 10) -> Pace:
    """Windows that went at these rates, after a slow first step."""
    pace, now = Pace(every, 1), 0.0
    pace.start_epoch(now)
    now += 60.0
    pace.ended(1, now)
    for number, rate in enumerate(rates):
        now += every / rate
        assert pace.ended(1 + every * (number + 1), now)
    return pace


def test_windows_are_timed_after_the_warm_up() -> None:
    state = paced([50.0] * WINDOWS).state(100.0)
    assert state is not None and state.ratio == pytest.approx(0.5) and state.confidence == pytest.approx(0.96875)
    assert paced([50.0] * (WINDOWS - 1)).state(100.0) is None


def test_windows_reach_over_epochs_and_leave_out_what_lies_between() -> None:
    pace, now = Pace(10, 0), 0.0
    for _ in range(15):
        pace.start_epoch(now)
        for batch in range(1, 5):
            now += 0.1
            if pace.is_due(batch):
                pace.ended(batch, now)
        pace.pause(4, now)
        now += 1000.0  # validation
    assert len(pace.rates) >= 4 and all(rate == pytest.approx(10.0) for rate in pace.rates)


def test_the_clock_is_read_once_a_window() -> None:
    pace = Pace(10, 2)
    pace.start_epoch(0.0)
    due = []
    for batch in range(1, 41):
        if pace.is_due(batch):
            due.append(batch)
            pace.ended(batch, float(batch))
    assert due == [1, 2, 12, 22, 32]


def test_an_epoch_that_goes_on_from_a_checkpoint_counts_only_its_own_batches() -> None:
    pace = Pace(10, 0)
    pace.start_epoch(0.0)
    pace.skip(90)
    assert not pace.is_due(99) and pace.is_due(100) and pace.ended(100, 2.0)
    assert list(pace.rates) == [5.0]


def test_throughput_leaves_the_floor_only_where_the_whole_interval_lies_below() -> None:
    assert held().look_at_pace(paced([80.0] * 6), 0, 60, lambda: 61 * 16) is not None
    assert held().look_at_pace(paced([80.0] * 5 + [95.0]), 0, 60, lambda: 61 * 16) is None
    holding = held(Guard(throughput_floor=0.7))
    assert holding.look_at_pace(paced([80.0] * 6), 0, 60, lambda: 61 * 16) is None
    assert holding.seen["throughput"]["ratio"] == pytest.approx(0.8)


def test_the_examples_are_counted_only_before_something_is_said() -> None:
    asked: list[int] = []

    def examples() -> int:
        asked.append(1)
        return 61 * 16

    held().look_at_pace(paced([100.0] * 6), 0, 60, examples)
    assert not asked
    holding = held()
    assert holding.look_at_pace(paced([50.0] * 6), 0, 60, examples) is not None and asked == [1]
    assert holding.look_at_pace(paced([40.0] * 6), 0, 70, examples) is None, "each kind is said once"


def test_another_batch_is_not_compared() -> None:
    holding = held()
    assert holding.look_at_pace(paced([50.0] * 6), 0, 60, lambda: 61 * 32) is None
    assert "batch differs: 32 examples a step here, 16 there" in holding.not_compared["throughput"]
    assert holding.look_at_loss(0, 99.0, 59) is None


def test_other_data_are_not_compared() -> None:
    holding = held()
    holding.epoch_had(60, 1)
    assert not holding.not_compared
    holding.epoch_had(62, 4)  # the last batch of Keras 3 with steps_per_execution=4
    assert not holding.not_compared
    holding.epoch_had(30, 1)
    assert "30 steps in an epoch here, 60 there" in holding.not_compared["loss"]
    assert holding.look_at_loss(0, 99.0, 29) is None


@pytest.mark.parametrize(("loss", "leaves"), [(0.8, 0), (0.95, 0), (0.97, 1), (0.6, 1), (math.nan, 1), (math.inf, 1)])
def test_the_loss_of_an_epoch_has_two_bounds(loss: float, leaves: int) -> None:
    holding = held()
    assert (holding.look_at_loss(0, loss, 59) is not None) == bool(leaves)
    assert len(holding.findings) == leaves and holding.seen["loss"]["earlier"] == 0.8


def test_seeds_that_are_not_the_same_are_not_compared() -> None:
    assert "no seed is set" in held(seed=None).not_compared["loss"]
    assert held(seed=None).look_at_pace(paced([50.0] * 6), 0, 60, lambda: None) is not None
    assert "the seed differs: 8 here, 7 there" in held(seed=8).not_compared["throughput"]
    assert held(seed=8).look_at_loss(0, 99.0, 59) is None


def test_seeds_widen_the_band() -> None:
    alone = band_of([1.0], 0.1)
    assert (alone.low, alone.high) == (0.9, 1.1)
    wide = band_of([1.0, 0.8, 1.2, 0.9], 0.1)
    assert wide.low < 0.5 and wide.high > 1.4 and "4 runs" in wide.method
    assert band_of([1.0, 1.001, 0.999], 0.1).low == 0.9
    assert not alone.holds(math.nan)


def test_a_fit_that_the_earlier_run_did_not_have_is_not_compared() -> None:
    holding = held()
    holding.start_fit(2, 7)
    assert "had 1 fits" in holding.not_compared["all"] and holding.look_at_loss(0, 99.0, 1) is None


def test_too_short_a_fit_says_so() -> None:
    holding = held()
    holding.end_fit()
    assert "fewer than six windows" in holding.not_compared["throughput"]


def test_the_latest_free_run_that_compares_is_the_baseline(project: Project) -> None:
    project.run(1)
    project.run(2)
    project.run(3, ["guard.action=stop"])
    found, why = find_baseline(project.run(4), "auto")
    assert found is not None and (found.run_id, found.no_rate, found.no_loss, why) == ("run-2", "", "", "")
    assert found.fits[0].steps_per_second == pytest.approx(100.0) and found.fits[0].batch == pytest.approx(16.0)
    assert found.fits[0].steps_per_epoch == 60.0
    named, _ = find_baseline(project.runs / "run-4", "run-1")
    assert named is not None and named.run_id == "run-1"
    assert find_baseline(project.runs / "run-4", "run-9") == (None, "No such run.")


def test_runs_that_left_a_band_or_failed_are_no_baseline(project: Project) -> None:
    tripped = {"guard": {"tripped": [{"kind": "loss", "what": "loss 9"}]}}
    project.run(1, measurements=measured(**tripped))
    project.run(2, status="failed")
    found, why = find_baseline(project.run(3), "auto")
    assert found is None and "no earlier completed run" in why


def test_runs_that_slow_down_one_by_one_are_held_to_the_first(project: Project) -> None:
    for number, rate in enumerate((100.0, 95.0, 90.0), 1):
        project.run(number, ["guard.throughput_floor=0.9"], fits=[fit(rate)])
    found, _ = find_baseline(project.run(4, ["guard.throughput_floor=0.9"]), "auto")
    assert found is not None and found.run_id == "run-1"


def test_why_nothing_is_compared(project: Project) -> None:
    project.run(1)
    project.script.write_text("import keras, sys\n")
    found, _ = find_baseline(project.run(2), "auto")
    assert found is not None and "the code differs: train.py" in found.no_rate and found.no_rate == found.no_loss
    other = ["tfvolta", "run", str(project.script), "--epochs", "3"]
    found, _ = find_baseline(project.run(3, ["fit.batch_size=8", "run.seed=8"], command=other), "run-2")
    assert found is not None
    for part in ("--epochs 3 here, --epochs 2 there", "seed differs: run.seed is 8 here, 7 there", "batch differs"):
        assert part in found.no_loss


def test_another_machine_compares_losses_alone(project: Project) -> None:
    from tests.pure.evidence_examples import facts

    project.run(1)
    found, _ = find_baseline(project.run(2, facts=facts(gpus=())), "auto")
    assert found is not None and "the machine differs" in found.no_rate and not found.no_loss
    holding = Holding(Guard(), found)
    assert not holding.why_not and set(holding.not_compared) == {"throughput"}
    assert Holding(Guard(loss_band=None), found).why_not.startswith("the machine differs")


def test_runs_with_other_seeds_spread_the_baseline(project: Project) -> None:
    for number, seed in enumerate((1, 2, 3), 1):
        project.run(number, [f"run.seed={seed}"], fits=[fit(losses={"0": 0.7 + number / 10}, seed=seed)])
    project.run(4, fits=[fit(losses={"0": 0.8})])
    project.config.write_text(TUNED)
    found, _ = find_baseline(project.run(5), "auto")
    assert found is not None and found.run_id == "run-4" and len(found.alike) == 3
    band: Any = found.band(1, 0, 0.01)
    assert "4 runs" in band.method and band.low < 0.7


def test_a_baseline_that_is_not_there_is_refused_at_plan_time(project: Project) -> None:
    from tfvolta.knobs.registry import knob

    project.run(1)
    asked = load(project, "guard.baseline=run-2")
    (problem,) = knob("guard").problems(asked, None, {})
    assert problem.where == "guard.baseline" and "run-1" in problem.fix
    assert knob("guard").problems(load(project, "guard.baseline=run-1"), None, {}) == []
    (problem,) = knob("guard").problems(load(project, "guard={throughput_floor: null, loss_band: null}"), None, {})
    assert "neither" in problem.received


def load(project: Project, *overrides: str) -> Any:
    from tfvolta.config.loading import load_config
    from tfvolta.knobs.registry import knob

    return knob("guard").value(load_config(overrides=[*overrides, f"run.directory={project.runs}"]))
