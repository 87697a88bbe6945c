"""Loss scale, gradient figures and alarms with two replicas; in processes of their own, for their logical devices."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.tensorflow.numerics_replicas", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[0][7:])
    return found


WAYS = [(), ("--without-merge-calls",)]


@pytest.mark.parametrize("way", WAYS)
def test_an_overflow_on_one_replica_counts_once_on_all(way: tuple[str, ...]) -> None:
    for found in run(*way)["scale"]:
        assert found["seen"] == found["expected"]
        assert found["counts"][:2] == found["counts"][2:]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_all_replicas_together(way: tuple[str, ...]) -> None:
    found = run(*way)
    assert found["gradients"] == [[step, pytest.approx(3.0), 1024.0, 1] for step in (1, 3, 5)]
    assert [row[1] for row in found["windows"]] == [pytest.approx(3.0)] * 3


def test_the_layer_is_named_whichever_replica_it_failed_on() -> None:
    found = run()["alarm"]
    assert found["batch"] == 2
    assert (found["culprit"]["kind"], found["culprit"]["layer"]) == ("activations", "middle")
    assert "those before the bad step" in found["weights"]
