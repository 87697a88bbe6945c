"""A folder of checkpoints belongs to one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pure.sources import ROOT
from tfvolta.checkpoint import lock

HOLD = """
import pathlib, sys
from tfvolta.checkpoint import lock
print(lock.hold(pathlib.Path(sys.argv[1])), flush=True)
"""


def start(folder: Path, then: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD + then, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_is_told_who_has_it_until_that_ends(tmp_path: Path) -> None:
    folder = tmp_path / "fit-00"
    with start(folder, "sys.stdin.read()") as first:
        assert answer(first) == "None"
        said = lock.hold(folder)
        assert said is not None and said.startswith(f"process {first.pid} on ")
        first.kill()
        first.wait(60)
    assert lock.hold(folder) is None
    try:
        assert lock.hold(folder) is None  # another fit of this process
        with start(folder) as second:
            assert answer(second).startswith("process ")
    finally:
        lock.release(folder)
    with start(folder) as third:
        assert answer(third) == "None"
    lock.release(folder)
    assert list(tmp_path.iterdir()) == [tmp_path / ".fit-00.lock"]  # of the process that ended without a word
