"""The search on a made-up machine: what it tries, what it leaves out, what it keeps, and what it calls a win."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pure.recorded_context import H200, machine
from tests.pure.tune_machine import MadeUp, space_of
from tfvolta.errors import TuneError
from tfvolta.facts.schema import Facts
from tfvolta.tune.belief import improvement
from tfvolta.tune.confirmation import Part, Rounds, confirm, confirm_lean, without_idle
from tfvolta.tune.history import History
from tfvolta.tune.journal import FILE_NAME
from tfvolta.tune.loss_guard import band_of
from tfvolta.tune.ratio import paired
from tfvolta.tune.search import Budget, Search
from tfvolta.tune.space import Space

FACTS = machine(H200)
ALL = Budget(trials=100, least_gain=-1.0)
XLA, CALLS, MANY = "xla.jit=model", "fit.steps_per_execution=10", "fit.steps_per_execution=32"


def searched(space: Space, measure: MadeUp, history: Any = None, budget: Budget = ALL, facts: Facts = FACTS) -> Search:
    """A search that has ended."""
    search = Search(space, history or History.in_memory(), facts, {})
    search.open("a")
    search.run(measure, budget, lambda tried, proposal: None)
    return search


def test_the_baseline_comes_first_and_the_best_is_found() -> None:
    measure = MadeUp({XLA: 2.0, CALLS: 1.2, MANY: 1.1, "input.prefetch=auto": 0.9})
    search = searched(space_of(XLA, CALLS, MANY, "input.prefetch=auto"), measure, budget=Budget(trials=6))
    assert measure.asked[0] == ()
    assert search.best is not None and set(search.best.words) == {XLA, CALLS}
    assert len(measure.asked) <= 6


def test_wrong_expectations_are_corrected_by_trials() -> None:
    """XLA is expected to pay on this machine; here it costs half, and the search has to leave it."""
    measure = MadeUp({XLA: 0.5, CALLS: 1.0, "devices.allocator=cuda_malloc_async": 1.3})
    search = searched(space_of(XLA, CALLS, "devices.allocator=cuda_malloc_async"), measure, budget=Budget(trials=6))
    assert search.best is not None and search.best.words == ("devices.allocator=cuda_malloc_async",)


def test_slow_trials_are_stopped_after_few_blocks() -> None:
    search = searched(space_of(XLA, CALLS), MadeUp({XLA: 0.5, CALLS: 1.5}), budget=ALL)
    ends = {tried.words: tried.trial for tried in search.tried}
    assert ends[(XLA,)].ending == "stopped" and len(ends[(XLA,)].blocks) < 16
    assert ends[(CALLS,)].ending == "measured"


def test_of_two_that_are_alike_the_one_with_fewer_settings_wins() -> None:
    search = searched(space_of(XLA, CALLS), MadeUp({XLA: 1.5, CALLS: 1.004}), budget=ALL)
    assert search.best is not None and search.best.words == (XLA,)


def test_a_step_that_does_not_compile_in_time_costs_one_trial() -> None:
    measure = MadeUp({CALLS: 1.2}, endings={XLA: ("compile timeout", "not done after 5 s")})
    space = space_of(XLA, CALLS, MANY, "input.prefetch=auto")
    search = searched(space, measure, budget=ALL)
    assert sum(XLA in words for words in measure.asked) == 1
    failed = [each for each in space.pruned if each.kind == "failed"]
    assert failed and "not done after 5 s" in failed[0].rule
    assert search.best is not None and search.best.words == (CALLS,)


@pytest.mark.parametrize("ending", ["out of memory", "crash", "refused", "hang"])
def test_failures_are_kept_with_their_reason_and_do_not_win(ending: str) -> None:
    search = searched(space_of(XLA, CALLS), MadeUp({XLA: 9.0, CALLS: 1.2}, {XLA: (ending, "as said")}), budget=ALL)
    assert search.best is not None and search.best.words == (CALLS,)
    failed = [tried.to_record(0) for tried in search.tried if XLA in tried.words]
    assert {(row.ending, row.reason) for row in failed} == {(ending, "as said")}


@pytest.mark.parametrize("loss", [0.1, 0.7, math.inf])
def test_a_trial_whose_loss_leaves_the_band_does_not_win(loss: float) -> None:
    search = searched(space_of(XLA, CALLS), MadeUp({XLA: 9.0, CALLS: 1.2}, losses={XLA: loss}), budget=ALL)
    assert search.best is not None and search.best.words == (CALLS,)
    assert any(tried.trial.ending == "loss left the band" for tried in search.tried)


def test_a_script_that_cannot_be_measured_is_refused_with_the_reason() -> None:
    def fails(words: Any, seed: int, describe: bool, is_slow: Any) -> Any:
        from tfvolta.tune.speed_trial import SpeedTrial

        return SpeedTrial("crash", "ModuleNotFoundError: no module named 'nothing'")

    search = Search(space_of(XLA), History.in_memory(), FACTS, {})
    search.open("a")
    with pytest.raises(TuneError, match="no module named 'nothing'"):
        search.run(fails, Budget(), lambda tried, proposal: None)


def test_an_interrupted_search_goes_on_without_measuring_anything_twice(tmp_path: Path) -> None:
    def told(tried: Any, proposal: Any) -> None:
        if tried.number == 2:
            raise KeyboardInterrupt

    factors = {XLA: 2.0, CALLS: 1.2, MANY: 1.1}
    first, history = MadeUp(factors), History(tmp_path)
    search = Search(space_of(XLA, CALLS, MANY), history, FACTS, {})
    search.open("a")
    with pytest.raises(KeyboardInterrupt):
        search.run(first, ALL, told)
    history.close()
    second, again = MadeUp(factors), History(tmp_path)
    resumed = searched(space_of(XLA, CALLS, MANY), second, again, ALL)
    again.close()
    assert len(first.asked) == 3 and not set(first.asked) & set(second.asked)
    assert len(resumed.tried) == 6 and [tried.reused for tried in resumed.tried] == [True] * 3 + [False] * 3


def test_trials_are_reused_by_a_search_of_another_space_with_the_same_fingerprint(tmp_path: Path) -> None:
    history = History(tmp_path)
    searched(space_of(XLA), MadeUp({XLA: 2.0}), history, ALL)
    wider = MadeUp({XLA: 2.0, CALLS: 1.1})
    search = searched(space_of(XLA, CALLS), wider, history, ALL)
    assert () not in wider.asked and (XLA,) not in wider.asked
    other = MadeUp({XLA: 2.0})
    fresh = Search(space_of(XLA), history, FACTS, {})
    fresh.open("b")
    fresh.run(other, ALL, lambda tried, proposal: None)
    history.close()
    assert () in other.asked, "another fingerprint shares nothing"
    assert sum(tried.reused for tried in search.tried) == 2


def test_two_searches_in_one_folder_are_refused(tmp_path: Path) -> None:
    history = History(tmp_path)
    try:
        code = (
            "import sys, pathlib; from tfvolta.tune.history import History; from tfvolta.errors import TuneError\n"
            "try: History(pathlib.Path(sys.argv[1]))\n"
            "except TuneError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert "Another search is running in this folder" in done.stdout, done.stderr
        assert "--directory DIR" in done.stdout
    finally:
        history.close()


def test_an_unfinished_last_line_is_put_aside_and_nothing_else_lost(tmp_path: Path) -> None:
    history = History(tmp_path)
    searched(space_of(XLA), MadeUp({XLA: 2.0}), history, ALL)
    history.close()
    path = tmp_path / FILE_NAME
    with path.open("ab") as file:
        file.write(b'{"op_code": 8, "work')
    again = History(tmp_path)
    measure = MadeUp({XLA: 2.0})
    searched(space_of(XLA), measure, again, ALL)
    again.close()
    assert measure.asked == []
    assert (tmp_path / f"{FILE_NAME}.unfinished").read_bytes() == b'{"op_code": 8, "work\n'


@pytest.mark.parametrize("damage", [b"\x00\xff garbage\n", b'"a string"\n', b'{"other": 1}\n'])
def test_a_damaged_history_is_refused_and_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    history = History(tmp_path)
    searched(space_of(XLA), MadeUp({XLA: 2.0}), history, ALL)
    history.close()
    path = tmp_path / FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = damage
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    with pytest.raises(TuneError, match=r"history.journal:3(.|\n)*mv .*history.journal"):
        History(tmp_path)
    assert path.read_bytes() == before
    path.rename(tmp_path / "aside")
    History(tmp_path).close()  # the lock was given up


def test_a_full_disk_is_said_and_what_was_kept_is_whole(tmp_path: Path) -> None:
    import resource
    import signal

    history = History(tmp_path)
    search = Search(space_of(XLA, CALLS, MANY), history, FACTS, {})
    search.open("a")
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def told(tried: Any, proposal: Any) -> None:
        if tried.number == 1:  # the file may grow by less than a trial needs
            size = (tmp_path / FILE_NAME).stat().st_size + 300
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))

    try:
        with pytest.raises(TuneError, match="What was kept before is whole"):
            search.run(MadeUp({XLA: 2.0}), ALL, told)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)
        history.close()
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") and isinstance(json.loads(line), dict) for line in lines)
    again = History(tmp_path)
    resumed = searched(space_of(XLA, CALLS, MANY), MadeUp({XLA: 2.0}), again, ALL)
    again.close()
    assert sum(tried.reused for tried in resumed.tried) == 2 and len(resumed.tried) == 6


def confirmed(measure: MadeUp, best: tuple[str, ...] = (XLA, CALLS)) -> Any:
    """The end of a search whose best has two settings."""
    history = History.in_memory()
    search = searched(space_of(XLA, CALLS), MadeUp(), history)
    assert search.stopped
    parts = [Part(word.partition("=")[0], (word,), tuple(each for each in best if each != word)) for word in best]
    seeds = [3, 4, 5, 6]
    return confirm(Rounds(measure, history, seeds, lambda count, total: None), best, parts, {"xla.jit": "off"}, seeds)


def test_rounds_tell_what_each_setting_buys() -> None:
    found = confirmed(MadeUp({XLA: 1.5, CALLS: 1.0}, noise=0.02))
    assert found.verdict == "gain" and found.gain.low > 1.3 and found.gain.high < 1.7
    rows = {row.setting: row for row in found.ablation}
    assert rows["xla.jit"].verdict == "gain" and rows["xla.jit"].without == "off"
    assert rows["fit.steps_per_execution"].verdict == "no gain"
    assert found.band.seeds == (3, 4, 5, 6)
    orders = [[row.settings for row in found.repeats][number : number + 4] for number in range(0, 16, 4)]
    assert orders[0] != orders[1], "the order of a round differs from that of the one before"


def test_settings_that_buy_nothing_are_dropped_where_the_rest_is_as_fast() -> None:
    measure, best = MadeUp({XLA: 1.5, CALLS: 1.0}, noise=0.005), (XLA, CALLS)
    parts = [Part(word.partition("=")[0], (word,), tuple(each for each in best if each != word)) for word in best]
    history = History.in_memory()
    searched(space_of(XLA, CALLS), MadeUp(), history)
    found = confirm(Rounds(measure, history, [0, 1, 2], lambda count, total: None), best, parts, {}, [0, 1, 2])
    lean = without_idle(found, best, parts)
    assert lean == (XLA,)
    rounds = Rounds(measure, history, [3, 4, 5], lambda count, total: None)
    final = confirm_lean(rounds, found, best, lean, [3, 4, 5])
    assert final is not None and final.verdict == "gain" and final.gain is not None and final.gain.low > 1.4
    notes = {row.setting: row.note for row in final.ablation}
    assert notes["fit.steps_per_execution"].startswith("dropped: ") and not notes["xla.jit"]
    assert len(final.repeats) == 3 * 4 + 3 * 3
    slower = MadeUp({XLA: 1.2, CALLS: 1.3}, noise=0.005)
    again = Rounds(slower, history, [6, 7, 8], lambda count, total: None)
    assert confirm_lean(again, found, best, lean, [6, 7, 8]) is None, "together they are faster than the rest alone"


def test_no_gain_is_an_answer() -> None:
    found = confirmed(MadeUp({XLA: 1.002}, noise=0.05))
    assert found.verdict == "no gain" and found.reason == "the interval holds no gain"


def test_a_gain_with_another_loss_is_no_win() -> None:
    found = confirmed(MadeUp({XLA: 2.0}, losses={XLA: 0.6}))
    assert found.verdict == "loss left the band" and "0.6" in found.reason


def test_repeats_that_fail_are_said() -> None:
    found = confirmed(MadeUp({}, endings={XLA: ("out of memory", "no room for 3 GiB")}))
    assert found.verdict == "not measured" and found.reason == "out of memory: no room for 3 GiB"


def test_the_interval_of_ratios() -> None:
    """Worked by hand: logarithms 0.1, 0.2, 0.3 have mean 0.2 and deviation 0.1; t(2) = 4.303, 4.303 * 0.1 / sqrt(3)."""
    found = paired([math.exp(0.1), math.exp(0.2), math.exp(0.3)], [1.0, 1.0, 1.0])
    assert found is not None
    wide = 4.303 * 0.1 / math.sqrt(3)
    assert (found.estimate, found.low, found.high) == pytest.approx([math.exp(0.2 + each) for each in (0, -wide, wide)])
    assert paired([1.0], [1.0]) is None


def test_the_band_is_a_prediction_interval_of_the_baselines_losses() -> None:
    from tfvolta.tune.speed_trial import SpeedTrial

    trials = [SpeedTrial("measured", losses=((32, loss),)) for loss in (1.0, 1.1, 1.2)]
    band = band_of(trials, [0, 1, 2], 32)
    assert band is not None
    assert band.high - 1.1 == pytest.approx(4.303 * 0.1 * math.sqrt(1 + 1 / 3))
    alone = band_of(trials[:1], [0], 32)
    assert alone is not None and (alone.low, alone.high) == pytest.approx((0.98, 1.02))


def test_expected_improvement_falls_with_the_mean_and_rises_with_doubt() -> None:
    import numpy as np

    gains = improvement(np.array([0.0, 0.0, -0.5]), np.array([0.1, 0.5, 0.1]), 0.0)
    assert gains[0] == pytest.approx(0.1 / math.sqrt(2 * math.pi))
    assert gains[1] > gains[0] > gains[2] >= 0


def test_a_space_too_large_to_look_at_whole_is_searched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfvolta.tune.sampler._MOST_POINTS", 50)
    words = [f"{key}={value}" for key in "abcdefgh" for value in (1, 2)] + [XLA, CALLS]
    measure = MadeUp({XLA: 1.6, CALLS: 1.2, "h=2": 1.1})
    search = searched(space_of(*words), measure, budget=Budget(trials=24))
    assert search.best is not None and {XLA, CALLS} <= set(search.best.words)
    assert len(set(measure.asked)) == len(measure.asked)
