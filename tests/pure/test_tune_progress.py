"""What a search shows: lines where it is piped, a bar without a thread of its own on a terminal."""

from __future__ import annotations

import io
import threading

from tests.pure.tune_machine import MadeUp
from tfvolta.tune.progress import Progress
from tfvolta.tune.search import Tried


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def tried(number: int, *words: str) -> Tried:
    trial = MadeUp({"xla.jit=model": 1.5})(words, 0, False, lambda blocks: False)
    return Tried(number, (number,), words, trial)


def shown(stream: io.StringIO) -> str:
    progress = Progress(stream)
    progress.begin("trials", 24)
    progress.trial(tried(0), 24)
    progress.trial(tried(1, "xla.jit=model"), 24)
    progress.tick()
    assert threading.active_count() == 1  # trials are started by forking
    progress.begin("repeats", 8)
    progress.round(1, 8)
    progress.close()
    progress.close()
    return stream.getvalue()


def test_lines_where_it_is_piped() -> None:
    lines = shown(io.StringIO()).splitlines()
    assert lines[0] == (
        "tfvolta: trial 0: the config as it is: measured, 1,000.0/s, 1.00x (10.0 s); best 1.00x the baseline; "
        "at most 4 min left"
    )
    assert "xla.jit=model: measured, 1,500.0/s, 1.50x" in lines[1] and "best 1.50x the baseline" in lines[1]
    assert lines[2] == "tfvolta: repeat 1 of 8; at most 70 s left"
    assert len(lines) == 3


def test_a_bar_on_a_terminal() -> None:
    text = shown(Terminal())
    assert "2/24" in text and "1/8" in text and "best 1.50x the baseline" in text
    assert "trial 1: xla.jit=model" in text
