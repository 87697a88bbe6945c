"""Processes of their own: two replicas train the same, and XLA's buffers of a deep model are less than half."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.stack import STACK

pytestmark = pytest.mark.timeout(600)
BLOCKS = "6"  # more take minutes to compile, and gain more
ROOT = pathlib.Path(__file__).parents[2]


def process(*arguments: str, **environ: str) -> dict[str, Any]:
    """What a process saw."""
    command = [sys.executable, "-m", "tests.tensorflow.recompute_runs", *arguments]
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        **environ,
    }
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=500, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    assert found["stack"] == STACK
    return found


def test_two_replicas_train_the_same() -> None:
    found = process("replicas")
    assert found["status"] == "APPLIED" and found["left_out"] == {}, found["message"]
    assert found["segments"] == 5
    assert found["distance"] < 1e-5


def buffers(folder: pathlib.Path, way: str) -> int:
    """Bytes that XLA sets aside for the largest step's intermediate values."""
    place = folder / way
    flags = f"--xla_dump_to={place} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*step.*"
    process("memory", way, BLOCKS, XLA_FLAGS=f"{flags} --xla_backend_optimization_level=0")
    texts = [path.read_text(encoding="utf-8") for path in place.glob("*buffer-assignment.txt")]
    sizes = [int(size) for text in texts for size in re.findall(r"size (\d+), preallocated-temp", text)]
    assert sizes, "XLA wrote no buffers"
    return max(sizes)


def test_buffers_of_a_deep_transformer_are_less_than_half(tmp_path: pathlib.Path) -> None:
    plain, again = buffers(tmp_path, "plain"), buffers(tmp_path, "again")
    assert again < 0.5 * plain, (plain, again)
