"""Batch normalisation across replicas: reported by name, converted with its weights, right for the global batch."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

import tfvolta


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tensorflow.batch_norm_runs"],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(tfvolta.__file__).parent.parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    results: dict[str, Any] = json.loads(line[len("RESULTS ") :])
    return results


@pytest.mark.parametrize(
    ("case", "moving"), [("plain", [5.0, 25.0]), ("subclass", [5.0, 25.0]), ("unequal", [3.0, 18.0])]
)
def test_converted_layers_see_the_global_batch(runs: dict[str, Any], case: str, moving: list[float]) -> None:
    found = runs[case]
    assert found["audited"] == found["changed"] == ["norm"] and found["after"] == []
    assert found["kept"] == [2.0, 3.0, 1.0, 4.0]  # gamma, beta, moving mean and variance of before
    assert found["moving"] == pytest.approx(moving, abs=1e-3)


def test_mixed_precision_keeps_the_statistics(runs: dict[str, Any]) -> None:
    assert runs["mixed"]["moving"] == pytest.approx([5.0, 25.0], rel=2e-3)
    assert runs["mixed"]["steps"] == runs["mixed"]["attempted"] == 1


def test_a_layer_left_as_it_is_is_named_with_the_way_out(runs: dict[str, Any]) -> None:
    (warning,) = runs["warned"]
    assert "norm" in warning and "synchronize_batch_norm" in warning


def test_a_layer_made_synchronized_is_left_alone(runs: dict[str, Any]) -> None:
    assert runs["made"] == {"audited": [], "changed": [], "moving": pytest.approx([5.0, 25.0], abs=1e-3)}
