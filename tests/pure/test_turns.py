"""Processes measured in turns: who is left out, who is compared with whom, and that none outlives the driver."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Optional

import pytest

from benchmarks.turns import Contender, Options, Result, take_turns
from benchmarks.turns_summary import Lines, summaries, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = "import os, sys, threading\nfrom benchmarks.baton import *\nbaton = Baton.from_environment()\n"
GOOD = """
baton.wait_for_warm_up()
word = baton.ready(parameters=5, first_loss=3.0)
while word != STOP:
    if word == PROFILE:
        word = baton.profiled(kernel_ms=1.5)
        continue
    word = baton.report(seconds=SECONDS, examples=100, steps=10, loss=2.0)
"""
FOREVER = "threading.Event().wait()\n"
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


def contender(name: str, text: str, group: str = "g", reference: bool = False) -> Contender:
    return Contender(name, group, [sys.executable, "-c", HEAD + text], ENVIRON, reference)


def steady(seconds: float) -> str:
    return GOOD.replace("SECONDS", str(seconds))


def measured(folder: pathlib.Path, *contenders: Contender, **asked: Any) -> Result:
    asked = {"ready_seconds": 30.0, "turn_seconds": 30.0, "rounds": 3, **asked}
    return take_turns(contenders, Options(**asked), folder)


def wait_for(seen: Callable[[], Any], seconds: float = 30.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = seen()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about in time")


def gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    state = pathlib.Path(f"/proc/{number}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_rounds_pair_each_contender_with_its_groups_reference(tmp_path: pathlib.Path) -> None:
    lines = Lines(tmp_path / "rows.jsonl")
    both = (
        contender("a/slow", steady(2.0), "a"),
        contender("a/peer", steady(1.0), "a", reference=True),
        contender("b/only", steady(0.5), "b"),
    )
    options = Options(rounds=4, discard=1, groups="together", ready_seconds=30.0, profile=True)
    result = take_turns(both, options, tmp_path, lines)
    assert result.left_out == {} and not result.interrupted
    assert [row["round"] for row in result.rows] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert all({row["group"] for row in result.rows[at : at + 2]} == {"a"} for at in range(0, 12, 3))
    assert result.profiles == {each.name: {"kernel_ms": 1.5} for each in both}
    slow, peer, only = summaries(both, result, options)
    assert (slow["examples_per_second"], slow["step_ms"], slow["rounds"]) == (50.0, 200.0, 3)
    assert slow["rate_ratio"]["estimate"] == 0.5 and slow["time_ratio"]["estimate"] == 2.0
    assert slow["pairs"] == 3 and slow["against"] == "a/peer" and slow["loss_by_epoch"] == [3.0] + [2.0] * 4
    assert "rate_ratio" not in peer and "rate_ratio" not in only
    assert "x0.5000" in table([slow])[0]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 12 + 3 + 3


def test_order_is_abba_or_shuffled_by_the_seed(tmp_path: pathlib.Path) -> None:
    names = [contender(name, steady(1.0)) for name in "abc"]
    abba = measured(tmp_path, *names, order="abba", rounds=2)
    assert "".join(row["contender"] for row in abba.rows) == "abccba"
    orders = ["".join(row["contender"] for row in measured(tmp_path, *names, rounds=4).rows) for _ in range(2)]
    assert orders[0] == orders[1] and orders[0] != "abc" * 4


@pytest.mark.parametrize("warm_up", ["together", "leaders", "serial"])
def test_who_fails_is_left_out_and_the_rest_goes_on(tmp_path: pathlib.Path, warm_up: str) -> None:
    result = measured(
        tmp_path,
        contender("fails", "baton.wait_for_warm_up(); print('out of memory', file=sys.stderr); sys.exit(3)"),
        contender("good", steady(1.0), reference=True),
        contender("garbled", "baton.wait_for_warm_up(); os.write(baton._sink, b'no json\\n')\n" + FOREVER),
        contender("dies", "baton.wait_for_warm_up(); baton.ready(); sys.exit(4)"),
        Contender("absent", "g", ["/no/such/program"], ENVIRON),
        warm_up=warm_up,
    )
    assert set(result.left_out) == {"fails", "garbled", "dies", "absent"}
    assert "exit code 3" in result.left_out["fails"] and "out of memory" in result.left_out["fails"]
    assert "no JSON" in result.left_out["garbled"] and "exit code 4" in result.left_out["dies"]
    assert "did not start" in result.left_out["absent"]
    assert [(row["round"], row["contender"]) for row in result.rows] == [(0, "good"), (1, "good"), (2, "good")]


def test_who_is_late_is_ended_and_the_rest_goes_on(tmp_path: pathlib.Path) -> None:
    pid = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    late = contender("late", pid + "baton.wait_for_warm_up()\n" + FOREVER)
    slow = contender("slow", "baton.wait_for_warm_up(); baton.ready()\n" + FOREVER)
    chosen = (late, slow, contender("good", steady(1.0)))
    result = measured(tmp_path, *chosen, ready_seconds=6.0, turn_seconds=2.0)
    assert set(result.left_out) == {"late", "slow"}
    assert "not ready in time" in result.left_out["late"] and "was late" in result.left_out["slow"]
    assert gone(int((tmp_path / "pid").read_text()))
    assert [row["contender"] for row in result.rows] == ["good"] * 3


def test_serial_warm_up_lets_one_use_the_device_at_a_time(tmp_path: pathlib.Path) -> None:
    text = """
baton.wait_for_warm_up()
lock = os.open(LOCK, os.O_CREAT | os.O_EXCL)
os.unlink(LOCK)
word = baton.ready()
while word != STOP:
    word = baton.report(seconds=1.0, examples=1)
""".replace("LOCK", repr(str(tmp_path / "lock")))
    result = measured(tmp_path, *(contender(name, text) for name in "abc"), warm_up="serial", rounds=1)
    assert result.left_out == {} and len(result.rows) == 3


def test_leaders_are_warm_before_the_others_begin(tmp_path: pathlib.Path) -> None:
    mark = repr(str(tmp_path / "leader"))
    leader = f"baton.wait_for_warm_up()\nopen({mark}, 'w').close()\nbaton.wait_for_warm_up = lambda: None\n"
    other = f"baton.wait_for_warm_up()\nassert os.path.exists({mark})\nbaton.wait_for_warm_up = lambda: None\n"
    chosen = (contender("other", other + steady(1.0)), contender("leader", leader + steady(1.0), reference=True))
    result = measured(tmp_path, *chosen, warm_up="leaders", rounds=1)
    assert result.left_out == {} and list(result.facts) == ["leader", "other"]


def test_no_turn_is_given_that_would_end_after_the_limit(tmp_path: pathlib.Path) -> None:
    result = measured(tmp_path, contender("good", steady(1.0)), rounds=10_000_000, limit_seconds=2.0)
    assert result.rows and not result.left_out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["compiling", "in its turn"])
def test_no_process_outlives_the_driver(tmp_path: pathlib.Path, number: signal.Signals, moment: str) -> None:
    before = "baton.wait_for_warm_up()\n" if moment == "compiling" else "baton.wait_for_warm_up(); baton.ready()\n"
    marked = f"open(os.path.join({str(tmp_path)!r}, str(os.getpid()) + '.pid'), 'w').close()\n"
    driver = f"""
import pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.pure.test_turns import contender
from benchmarks.turns import Options, take_turns
both = [contender(name, {before + marked + FOREVER!r}) for name in "ab"]
result = take_turns(both, Options(), pathlib.Path({str(tmp_path)!r}))
print(result.interrupted)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", driver], env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        expected = 2 if moment == "compiling" else 1  # the other one waits for its turn
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) >= expected)
        children = [int(path.stem) for path in tmp_path.glob("*.pid")]
        process.send_signal(number)
        said, problems = process.communicate(timeout=30)
    finally:
        process.kill()
    if number != signal.SIGKILL:
        assert said.strip() == signal.Signals(number).name, problems
    wait_for(lambda: all(gone(child) for child in children))


def test_what_cannot_be_compared_is_refused(tmp_path: pathlib.Path) -> None:
    good = contender("a", "", reference=True)
    wrong: list[tuple[list[Contender], Optional[str]]] = [
        ([], "at least one contender"),
        ([good, good], "unique"),
        ([good, contender("b", "", reference=True)], "one reference"),
    ]
    for contenders, said in wrong:
        with pytest.raises(ValueError, match=said):
            measured(tmp_path, *contenders)
