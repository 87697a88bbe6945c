"""Lines of workers, the way to a slow reader, words about endings, and when the next stage of an end is due."""

from __future__ import annotations

import os
import signal

import pytest

from tfvolta.launch.ending import Ended
from tfvolta.launch.escalation import Escalation
from tfvolta.launch.lines import Lines, last_lines, prefix
from tfvolta.launch.outlet import Outlet


def test_lines_are_whole_whatever_the_pieces() -> None:
    reading, writing = os.pipe()
    lines = Lines(reading)
    found = []
    for piece in (b"one\ntw", b"o\r\nthree\r", b"\nfour 1%\rfour 2%\r", b"\xff\xfe\n", b"\n", b"no end"):
        os.write(writing, piece)
        found += lines.read()
    assert found == [b"one", b"two", b"three", b"four 1%", b"four 2%", b"\xff\xfe", b""]
    os.close(writing)
    assert lines.read() == [b"no end"] and not lines.is_open and lines.read() == []
    assert last_lines(lines.last)[-1] == "no end"


def test_a_line_without_an_end_is_passed_on_in_pieces() -> None:
    reading, writing = os.pipe()
    lines = Lines(reading)
    found: list[bytes] = []
    for _ in range(5):
        os.write(writing, b"x" * 32768)
        found += lines.read()
    os.close(writing)
    found += lines.read()
    assert b"".join(found) == b"x" * 5 * 32768 and max(map(len, found)) == 65536


def test_a_pipe_that_somebody_else_holds_is_finished_all_the_same() -> None:
    reading, writing = os.pipe()
    lines = Lines(reading)
    os.write(writing, b"last\nrest")
    assert lines.finish() == [b"last", b"rest"] and not lines.is_open
    os.close(writing)


def test_the_last_lines_are_those_that_tell_something() -> None:
    lines = (
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        b"I0000 00:00:1796096486.311679   17511 port.cc:153] oneDNN custom operations are on.",
        b"2026-12-01 03:51:25.203816: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary",
        b"2026-12-01 03:51:25.203816: E tensorflow/core/fault.cc:1] Bad",
        b"ValueError: mine",
        b"",
    )
    assert last_lines(lines) == ("2026-12-01 03:51:25.203816: E tensorflow/core/fault.cc:1] Bad", "ValueError: mine")


def test_prefixes_are_coloured_only_where_asked() -> None:
    assert prefix("worker 1", 1, colour=False) == b"[worker 1] "
    assert prefix("worker 1", 1, colour=True) == b"\x1b[33m[worker 1]\x1b[0m "
    assert len({prefix("w", rank, colour=True) for rank in range(10)}) == 10


def test_an_outlet_never_waits_and_loses_nothing() -> None:
    reading, writing = os.pipe()
    outlet = Outlet(writing)
    whole = [b"%d " % number + b"y" * 5000 for number in range(60)]
    outlet.put(whole, b"> ")
    os.set_blocking(writing, False)  # a write that would wait fails instead
    received = b""
    for _ in range(10000):
        if not outlet.is_waiting:
            break
        outlet.write()
        received += os.read(reading, 10000)
    received += os.read(reading, 1 << 20) if len(received) < sum(len(line) + 3 for line in whole) else b""
    assert received == b"".join(b"> " + line + b"\n" for line in whole)
    os.close(reading)
    os.close(writing)


def test_an_outlet_says_when_it_is_full_and_when_nobody_reads() -> None:
    reading, writing = os.pipe()
    outlet = Outlet(writing)
    assert not outlet.is_full
    outlet.put([b"z" * (1 << 20)])
    assert outlet.is_full and outlet.is_waiting
    os.close(reading)
    outlet.write()
    assert outlet.is_broken and not outlet.is_waiting and not outlet.is_full
    outlet.put([b"more"])
    assert not outlet.is_waiting
    os.close(writing)


@pytest.mark.parametrize(
    ("ended", "text", "code"),
    [
        (Ended("worker 1", 9, 6), "worker 1 exited with code 9 (at step 6)", 9),
        (Ended("ps 0", 1), "ps 0 exited with code 1", 1),
        (Ended("worker 0", -9, 3), "worker 0 was ended by SIGKILL (at step 3)", 137),
        (Ended("worker 0", -64), "worker 0 was ended by SIGRTMAX", 192),
        (Ended("worker 0", -70), "worker 0 was ended by signal 70", 198),
        (Ended("worker 0", 75, 4), "worker 0 exited with code 75 (at step 4): its watchdog saw no progress", 75),
        (Ended("worker 1", 75, 4, (), "all wait"), "worker 1 stands still (at step 4): all wait", 75),
    ],
)
def test_endings_in_words(ended: Ended, text: str, code: int) -> None:
    assert (str(ended), ended.code) == (text, code)


def test_an_end_has_stages() -> None:
    moment = [100.0]
    end = Escalation(5.0, clock=lambda: moment[0])
    assert not end.is_on and end.due() is None and end.wait_seconds is None
    end.begin(10.0)
    assert end.is_on and end.due() is None and end.wait_seconds == 10.0
    moment[0] = 110.0
    assert end.due() == signal.SIGTERM and end.due() is None and end.wait_seconds == 5.0
    moment[0] = 115.0
    assert end.due() == signal.SIGKILL and end.due() is None
    moment[0] = 120.0
    assert end.due() == signal.SIGKILL, "again and again: a process in a disk's hands dies late"


def test_an_impatient_signal_brings_the_next_stage_forward() -> None:
    end = Escalation(1000.0, clock=lambda: 0.0)
    end.begin(1000.0)
    end.sooner(0.0)
    assert end.due() == signal.SIGTERM
    end.sooner(0.0)
    assert end.due() == signal.SIGKILL
    end.begin(1.0)
    end.sooner(500.0)
    assert end.wait_seconds == 1.0
