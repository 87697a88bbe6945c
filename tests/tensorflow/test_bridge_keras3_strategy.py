"""Keras 3 under MirroredStrategy: an overflow on any replica skips the step on all of them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

SCRIPT = pathlib.Path(__file__).parent / "keras3_mirrored_run.py"
ROOT = pathlib.Path(__file__).parents[2]


def train(bad_replica: int, kind: str = "corrected") -> dict[str, Any]:
    """One run in a process of its own, which splits the CPU in two."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(bad_replica), kind], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_an_overflow_on_either_replica_is_skipped_by_both() -> None:
    first, second = train(0), train(1)
    for run in (first, second):
        assert run["finite"] and (run["applied"], run["skipped"]) == (3, 1)
        assert (run["scale"], run["good_steps"]) == (16384.0, 2)
    for left, right in zip(first["weights"], second["weights"]):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_without_an_overflow_every_step_is_applied_and_seen_in_the_graph() -> None:
    run = train(-1)
    assert run["finite"] and (run["applied"], run["skipped"]) == (4, 0)
    assert run["examples"] == 256 and run["float16"] > 0 and run["collectives"] > 0
    assert run["jit"][0] is False and run["jit"][1]
    assert run["obstacles"] == []  # on GPUs each replica's step is compiled by itself


def test_keras_own_wrapper_still_destroys_the_weights() -> None:
    """The reason for the correction; when this fails, Keras has mended it and the correction can go."""
    run = train(1, "plain")
    assert not run["finite"] and run["skipped"] is None
