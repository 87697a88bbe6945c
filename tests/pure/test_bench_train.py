"""The script of a contender, without TensorFlow: which rows are whose, and what is told to whom."""

from __future__ import annotations

import json
import pathlib
import socket

import pytest

from tfvolta.bench.train import Teller, own_rows, parser
from tfvolta.bench.turns import NAME, SOCKET, BenchGone, Lines, Turns


def test_ranks_that_share_a_batch_have_different_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_rows(32, 1) == slice(0, 32)
    found: list[int] = []
    for rank in range(4):
        for name, value in {"RANK": rank, "SIZE": 4, "LOCAL_RANK": rank, "LOCAL_SIZE": 4}.items():
            monkeypatch.setenv(f"HOROVOD_{name}", str(value))
        found += range(32)[own_rows(32, 4)]
    assert found == list(range(32))


def test_a_script_that_is_started_by_hand_prints(capsys: pytest.CaptureFixture[str]) -> None:
    teller = Teller(True, {})
    teller.say("epoch", seconds=1.0)
    teller.wait()
    assert json.loads(capsys.readouterr().out) == {"kind": "epoch", "seconds": 1.0}
    Teller(False, {SOCKET: "nowhere"}).say("epoch", seconds=1.0)
    assert capsys.readouterr().out == ""


def test_the_script_takes_what_the_bench_gives() -> None:
    found = parser().parse_args(["mlp", "--sizes", '{"batch": 8}', "--tiny"])
    assert found.sizes == {"batch": 8} and found.warmup_epochs == 2 and found.ranks == 1


def test_turns_go_over_a_socket_and_end_with_it(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        turns = Turns.of({SOCKET: path, NAME: "a"})
        assert turns is not None
        lines = Lines(listener.accept()[0])
        (hello,) = lines.read()
        assert hello["kind"] == "hello" and hello["name"] == "a"
        assert lines.read() == []
        turns.say("epoch", loss="nan")
        assert lines.read() == [{"kind": "epoch", "loss": "nan"}]
        lines.go()
        turns.wait()
        lines.close()
        with pytest.raises(BenchGone):
            turns.wait()


def test_lines_that_are_no_json_are_left_out() -> None:
    ours, theirs = socket.socketpair()
    lines = Lines(ours)
    theirs.sendall(b'noise\n[1]\n{"kind": "epoch"}\n{"kind": "unfin')
    assert lines.read() == [{"kind": "epoch"}]
    theirs.sendall(b'ished"}\n')
    assert lines.read() == [{"kind": "unfinished"}]
    theirs.close()
    assert lines.read() == [] and not lines.is_open
