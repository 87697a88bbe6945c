"""Workers that stop after the same step, whoever was told to end and wherever each of them is."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Optional

import pytest

from tests.pure.sources import ROOT
from tfvolta.checkpoint.agreement import Board, StopAgreement
from tfvolta.checkpoint.randomness import capture, restore
from tfvolta.errors import PREEMPTED_EXIT_CODE
from tfvolta.peers import Alone, Peers

CALLS = 200


class Worker(threading.Thread):
    """Trains in step with the others: a call ends when all of them are in it, as with an all-reduce."""

    def __init__(self, agreement: StopAgreement, calls: list[threading.Barrier]):
        super().__init__(daemon=True)
        self.agreement, self.calls = agreement, calls
        self.reached = threading.Semaphore(0)
        self.done = 0
        self.broken = False

    def run(self) -> None:
        for call in self.calls:
            if not self.agreement.begin_call():
                return
            self.reached.release()
            try:
                call.wait(timeout=20)
            except threading.BrokenBarrierError:
                self.broken = True
                return
            self.done += 1


def team(folder: Path, size: int) -> list[Worker]:
    Board(folder, 0).open()
    calls = [threading.Barrier(size) for _ in range(CALLS)]
    return [Worker(StopAgreement(size, Board(folder, rank)), calls) for rank in range(size)]


@pytest.mark.parametrize("told", [(0,), (1,), (0, 1, 2)])
def test_all_workers_stop_after_the_same_call(tmp_path: Path, told: tuple[int, ...]) -> None:
    workers = team(tmp_path / "board", 3)
    for worker in workers:
        worker.start()
    for _ in range(5):
        workers[told[0]].reached.acquire(timeout=20)
    for rank in told:
        workers[rank].agreement.ask()
    for worker in workers:
        worker.join(timeout=30)
    done = [worker.done for worker in workers]
    assert not any(worker.broken or worker.is_alive() or worker.agreement.failed for worker in workers)
    assert len(set(done)) == 1, done
    assert 4 <= done[0] <= CALLS
    for worker in workers:
        worker.agreement.close()


def test_a_worker_whose_others_do_not_answer_stops_by_itself(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 0)
    board.open()
    agreement = StopAgreement(2, board, answer_seconds=0.5)
    assert agreement.begin_call()
    agreement.ask()
    while agreement.begin_call():  # the listener takes a moment to tell
        pass
    assert agreement.failed
    agreement.close()
    board.close()
    assert not (tmp_path / "board").exists()


def test_one_process_stops_where_the_next_call_begins() -> None:
    agreement = StopAgreement(1)
    assert agreement.begin_call()
    assert not agreement.is_over()
    agreement.ask()
    assert agreement.asked
    assert agreement.is_over()
    assert not agreement.begin_call()
    agreement.close()


SCRIPT = """
    import os, signal, sys, threading
    from tfvolta.checkpoint import preemption
    preemption.SAME_REQUEST_SECONDS = 0.0 if "hurry" in sys.argv else 1e9
    heard = threading.Event()
    former = []
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7) if "child" in former else former.append("former"))
    listener = preemption.TerminationSignal(heard.set, lambda frame: "elsewhere" not in sys.argv)
    assert listener.start()
    if "fork" in sys.argv:
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            former.append("child")
            os.write(tell, b"x")
            os.read(os.pipe()[0], 1)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print("heard", heard.is_set(), flush=True)
        sys.exit(0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard.wait(30)
    print("heard", former, flush=True)
    if "hurry" in sys.argv or "twice" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)
        if "hurry" in sys.argv:
            signal.pause()
    if "elsewhere" not in sys.argv:
        listener.stop()
        os.kill(os.getpid(), signal.SIGTERM)
    print("after", former, flush=True)
"""


def listened(*arguments: str) -> tuple[int, list[str]]:
    """Runs the script; its exit code and what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    return done.returncode, done.stdout.split("\n")[:-1] or [done.stderr]


def test_sigterm_is_heard_and_the_former_handler_comes_back() -> None:
    assert listened() == (0, ["heard []", "after ['former']"])


def test_one_request_that_comes_twice_is_one() -> None:
    assert listened("twice") == (0, ["heard []", "after ['former']"])


def test_a_second_request_ends_at_once() -> None:
    assert listened("hurry") == (PREEMPTED_EXIT_CODE, ["heard []"])


def test_outside_of_training_the_former_handler_has_it() -> None:
    code, lines = listened("elsewhere")
    assert code == 0
    assert lines[-1] == "after ['former']"


def test_a_worker_of_a_pool_that_is_ended_is_not_taken_for_this_process() -> None:
    code, lines = listened("fork")
    assert code == 0
    assert lines == ["child 7", "heard False"]  # the child's own handler was the former one


def test_random_generators_go_on_where_they_were() -> None:
    before = capture()
    first = [random.random(), random.gauss(0, 1), random.random()]
    restore(before)
    assert [random.random(), random.gauss(0, 1), random.random()] == first


class Both(Peers):
    """Two processes, of which the other gives what it is told to."""

    rank, size = 0, 2

    def __init__(self, other: bytes):
        self.other = other

    def gather(self, values: object) -> list[list[int]]:
        own: list[int] = list(values)  # type: ignore[call-overload]
        if self._lengths is None:
            self._lengths = own
            return [own, [len(self.other)]]
        padded = self.other.ljust(len(own) * 8, b"\0")
        return [own, [int.from_bytes(padded[at : at + 8], "little", signed=True) for at in range(0, len(padded), 8)]]

    _lengths: Optional[list[int]] = None


@pytest.mark.parametrize(("own", "other"), [(b"", b""), (b"\xff" * 9, b"a"), (b"abc", bytes(range(256)))])
def test_bytes_of_any_length_travel(own: bytes, other: bytes) -> None:
    assert Both(other).gather_bytes(own) == [own, other]
    assert Alone().gather_bytes(own) == [own]


def test_a_worker_told_to_end_when_all_have_ended_disturbs_nobody(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 1)
    Board(tmp_path / "board", 0).open()
    board.close()
    board.tell(3)
    assert board.told() == {}
