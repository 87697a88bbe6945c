"""What the chief finds is the same on every worker: a value, an error, or a folder that one of them does not see."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

import pytest

from tfvolta.checkpoint import exchange
from tfvolta.errors import CheckpointError, Problem
from tfvolta.peers import Peers

SIZE = 3


class Meeting:
    """Where threads exchange rows of numbers."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = [[] for _ in range(SIZE)]
        self.barrier = threading.Barrier(SIZE)


class Member(Peers):
    """One of several workers, each in a thread."""

    size = SIZE

    def __init__(self, rank: int, meeting: Meeting):
        self.rank, self.meeting = rank, meeting

    def gather(self, values: Sequence[int]) -> list[list[int]]:
        self.meeting.rows[self.rank] = list(values)
        self.meeting.barrier.wait(timeout=30)
        rows = [list(row) for row in self.meeting.rows]
        self.meeting.barrier.wait(timeout=30)
        return rows


def together(work: Callable[[Member], Any]) -> list[Any]:
    """What every worker's thread returned or raised."""
    meeting, results = Meeting(), [None] * SIZE

    def run(rank: int) -> None:
        try:
            results[rank] = work(Member(rank, meeting))
        except Exception as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.parametrize("value", [None, "step-000000012", [1, {"a": 2}]])
def test_every_worker_gets_what_the_chief_found(value: Any) -> None:
    asked: list[int] = []

    def find(rank: int) -> Any:
        asked.append(rank)
        return value

    assert together(lambda member: exchange.from_chief(member, lambda: find(member.rank))) == [value] * SIZE
    assert asked == [0]


def test_every_worker_raises_what_the_chief_raised() -> None:
    problem = Problem("checkpoint.directory: /x", "a folder", "a file", "it is in the way", "remove it")

    def find() -> None:
        raise CheckpointError("It cannot be written.", [problem])

    for error in together(lambda member: exchange.from_chief(member, find)):
        assert isinstance(error, CheckpointError)
        assert (error.summary, error.problems) == ("It cannot be written.", (problem,))


def test_workers_with_one_folder_open_a_board(tmp_path: Path) -> None:
    def work(member: Member) -> Optional[dict[int, int]]:
        board = exchange.open_board(member, tmp_path)
        assert board is not None
        board.tell(10 + member.rank)
        member.gather([1])
        told = board.told()
        member.gather([1])
        if member.is_chief:
            board.close()
        return told

    assert together(work) == [{0: 10, 1: 11, 2: 12}] * SIZE
    assert list(tmp_path.iterdir()) == []


def test_a_worker_with_another_folder_is_named_on_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SEEN_SECONDS", 0.3)
    folders = [tmp_path / "shared", tmp_path / "own", tmp_path / "shared"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    for error in together(lambda member: exchange.open_board(member, folders[member.rank])):
        assert isinstance(error, CheckpointError)
        assert "is not seen by worker 1" in error.problems[0].received
        assert "shared file system" in error.problems[0].fix
    assert list((tmp_path / "shared").iterdir()) == []
