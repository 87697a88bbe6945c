"""The watchdog's decisions, with a clock of the test's own; its knob; and which process writes where."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.pure.recorded_context import machine
from tfvolta.config.schema import Config
from tfvolta.evidence.heartbeat import BEGUN, ENDED, OTHER, HeartbeatFile, read_heartbeats
from tfvolta.evidence.place import Place
from tfvolta.evidence.store import EvidenceStore
from tfvolta.knobs.stall_watch import StallWatch, first_step_seconds
from tfvolta.knobs.ticker import Ticker
from tfvolta.knobs.watchdog import Watchdog
from tfvolta.outcome import Status


class Watched:
    """A watch whose clock and standstills the test sees; its thread is never started."""

    def __init__(self, stall_seconds: float = 10.0):
        self.now = 1000.0
        self.stalls: list[tuple[float, float]] = []
        self.watch = StallWatch(stall_seconds, ends=True, clock=lambda: self.now)
        self.watch.on_stall = lambda seconds, limit: self.stalls.append((seconds, limit))
        self.watch._ticker.start = lambda: None  # type: ignore[method-assign]

    def after(self, seconds: float, begun: int = 0, ended: int = 0, other: int = 0) -> list[tuple[float, float]]:
        """Lets time pass, and progress at its end."""
        self.now += seconds
        self.watch.counts[BEGUN] += begun
        self.watch.counts[ENDED] += ended
        self.watch.counts[OTHER] += other
        self.watch.check()
        stalls, self.stalls = self.stalls, []
        return stalls


def test_no_batch_for_too_long_is_told_once() -> None:
    seen = Watched()
    seen.watch.arm()
    assert seen.after(1.0, begun=1, ended=1) == []
    assert seen.after(9.0) == [] and seen.watch.state == "training"
    assert seen.after(2.0) == [(11.0, 10.0)] and seen.after(50.0) == []
    assert seen.after(1.0, begun=1, ended=1) == [] and seen.after(10.5) == [(10.5, 10.0)]


def test_the_first_step_gets_longer() -> None:
    assert first_step_seconds(600.0) == 1800.0 and first_step_seconds(1.0) == 120.0
    seen = Watched()
    seen.watch.arm()
    assert seen.after(119.0) == [] and seen.after(2.0) == [(121.0, 120.0)]
    seen.watch.start_from(100)
    assert seen.after(1.0) == [] and seen.watch.state == "first step", "numbers of an earlier fit are no progress"
    assert seen.after(100.0, begun=101, ended=101) == [] and seen.watch.state == "training"


def test_evaluation_is_progress_and_its_first_batch_gets_longer() -> None:
    seen = Watched()
    seen.watch.arm()
    seen.after(1.0, begun=1, ended=1)
    seen.watch.evaluate()
    assert seen.after(100.0) == []
    assert seen.after(1.0, other=1) == [] and seen.after(9.0, other=1) == [] and seen.after(9.0, other=1) == []
    assert seen.after(11.0) == [(11.0, 10.0)]
    seen.watch.train_on()
    assert seen.after(1.0) == [] and seen.watch.limit_seconds == 10.0


def test_between_two_fits_nothing_is_watched() -> None:
    seen = Watched()
    assert seen.after(1e6) == []
    seen.watch.arm()
    seen.after(1.0, begun=1, ended=1)
    seen.watch.disarm()
    assert seen.after(1e6) == [] and seen.watch.limit_seconds is None


def test_a_fit_that_an_exception_has_left_is_not_watched() -> None:
    seen = Watched()

    def fit() -> None:
        seen.watch.arm()
        seen.after(1.0, begun=1, ended=1)
        assert seen.after(11.0) == [(11.0, 10.0)], "inside it is"
        seen.after(1.0, begun=1)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        fit()
    assert seen.after(1e6) == [] and seen.watch.state == "between fits"


def test_another_thread_that_calls_fit_is_looked_at() -> None:
    seen = Watched()
    inside, leave = threading.Event(), threading.Event()

    def fit() -> None:
        seen.watch.arm()
        seen.after(1.0, begun=1, ended=1)
        inside.set()
        assert leave.wait(60)

    thread = threading.Thread(target=fit)
    thread.start()
    assert inside.wait(60)
    assert seen.after(11.0) == [(11.0, 10.0)]
    leave.set()
    thread.join(60)
    assert seen.after(1.0, begun=1) == [] and seen.after(1e6) == []


def test_a_limit_without_end_switches_it_off() -> None:
    seen = Watched(math.inf)
    seen.watch.arm()
    seen.after(1.0, begun=1, ended=1)
    assert seen.after(1e9) == []


def test_signs_of_life_say_what_the_watch_knows(tmp_path: Path) -> None:
    seen = Watched()
    seen.watch.counts[ENDED] = 3
    seen.watch.write_to(HeartbeatFile(tmp_path, "worker 0", 0))
    seen.watch.arm()
    seen.after(1.0, begun=5, ended=1)
    (beat,) = read_heartbeats(tmp_path)
    assert (beat.begun, beat.ended, beat.state, beat.limit_seconds, beat.ends) == (5, 4, "training", 10.0, True)
    seen.after(7.0)
    assert time.time() - read_heartbeats(tmp_path)[0].progressed == pytest.approx(7.0, abs=2.0)


def test_the_thread_runs_until_it_is_stopped() -> None:
    ticked = threading.Event()
    ticker = Ticker("ticks", 0.01, ticked.set)
    assert not ticker.is_running
    ticker.start()
    ticker.start()
    assert ticked.wait(60) and ticker.is_running
    ticker.stop()
    assert not ticker.is_running and "ticks" not in {thread.name for thread in threading.enumerate()}


def value(**sections: Any) -> Any:
    return Watchdog().value(Config.model_validate(sections))


@pytest.mark.parametrize("kind", ["multi_worker_mirrored", "horovod", "parameter_server"])
def test_several_processes_have_a_watchdog_by_themselves(kind: str) -> None:
    config = Config.model_validate({"strategy": {"kind": kind}})
    found = Watchdog().value(config)
    assert found == {"stall_seconds": 600.0, "first_step_seconds": 1800.0, "end": True}
    forecast = Watchdog().forecast(found, machine(), config)
    assert forecast.status is Status.APPLIED and kind in forecast.message and "1800 s" in forecast.message
    assert "exit code 75" in forecast.message


def test_one_process_has_it_where_the_config_asks() -> None:
    assert value() is None and value(strategy={"kind": "mirrored"}) is None
    assert value(watchdog={}) == {"stall_seconds": 600.0, "first_step_seconds": 1800.0, "end": True}
    asked = {"stall_seconds": 5.0, "first_step_seconds": 30.0, "end": False}
    assert value(watchdog=asked, strategy={"kind": "horovod"}) == asked
    message = Watchdog().forecast(asked, machine(), Config.model_validate({"watchdog": asked})).message
    assert "exit code" not in message and "by itself" not in message


def place(index: int, run_id: str | None = "run") -> Place:
    return Place(run_id=run_id, worker=f"worker {index}", rank=index, workers=2, is_chief=index == 0)


def test_workers_of_a_launch_have_a_folder_each_in_that_of_the_run(tmp_path: Path) -> None:
    other, chief = EvidenceStore.claim(tmp_path, place(1)), EvidenceStore.claim(tmp_path, place(0))
    assert (chief.directory, other.directory) == (tmp_path / "run", tmp_path / "run" / "workers" / "worker-1")
    assert chief.run_id == other.run_id == "run"
    again = [EvidenceStore.claim(tmp_path, place(index)) for index in (0, 1)]
    assert len({store.directory for store in (chief, other, *again)}) == 4
    assert again[1].directory.name.endswith("-worker-1") and again[0].run_id != "run"


def test_a_process_alone_names_its_run_by_the_time(tmp_path: Path) -> None:
    alone, one = EvidenceStore.claim(tmp_path, Place()), EvidenceStore.claim(tmp_path, place(1, None))
    assert alone.run_id == alone.directory.name and "worker" not in alone.run_id
    assert one.run_id == one.directory.name and one.run_id.endswith("-worker-1")


def test_the_environment_says_which_run_this_is() -> None:
    said = {"TFVOLTA_RUN_ID": "run", "TFVOLTA_HEARTBEATS": "/beats", "TFVOLTA_RESTART": "3"}
    found = Place.of(said, None)
    assert (found.run_id, found.heartbeats, found.restart, found.folder) == ("run", "/beats", 3, "")
    assert Place.of({"TFVOLTA_RESTART": "odd"}, None) == Place()
