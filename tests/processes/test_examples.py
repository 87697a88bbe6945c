"""The examples as a user runs them, made small: what was set for each model, and what it has learnt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.script_run import ROOT

pytestmark = pytest.mark.timeout(600)

SMALL = {
    "resnet": ("--width", "8", "--blocks", "1", "--epochs", "3"),
    "transformer": ("--width", "32", "--heads", "2", "--layers", "1", "--length", "32", "--rows", "1280"),
    "lstm": ("--width", "32", "--length", "24", "--rows", "300", "--epochs", "4"),
}


def tfvolta_on(folder: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of tfvolta with the default config, on the stack of this process and without a GPU."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    line = [sys.executable, "-m", "tfvolta", command, "--directory", str(folder), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=500, env=environment, cwd=ROOT)


def ran(folder: Path, name: str) -> tuple[dict[str, Any], str]:
    """The evidence of an example, and its report; it ended well, and has learnt something."""
    script = ROOT / "examples" / f"{name}.py"
    assert "tfvolta" not in script.read_text(encoding="utf-8")
    done = tfvolta_on(folder, "run", f"examples/{name}.py", *SMALL[name])
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"test accuracy (\S+) \(guessing: (\S+)\)", done.stdout)
    assert found is not None and float(found[1]) > 1.3 * float(found[2]), done.stdout
    (path,) = folder.glob("*/evidence.json")
    return json.loads(path.read_text()), " ".join(done.stderr.split())


def assert_half(evidence: dict[str, Any], island: str) -> None:
    """Computed in float16 but for the outputs, under a loss scale; the step has products in float16 to show for it."""
    outcomes = evidence["outcomes"]
    for name in ("policy", "retrofit", "float32_islands", "loss_scale", "jit"):
        assert outcomes[name]["status"] == "APPLIED", (name, outcomes[name])
    assert list(outcomes["float32_islands"]["observed"]["islands"]) == [island]
    assert outcomes["retrofit"]["observed"]["products"]["float16"] > 0
    assert "No GPU is in use; compiling is chosen for GPUs only" in outcomes["jit"]["message"]
    assert evidence["measurements"]["throughput"]["examples_per_second"] > 0
    assert 0 < evidence["fits"][0]["loss"] < 3 and evidence["fits"][0]["skipped"] == 0


def test_the_resnet_has_the_batch_norm_of_its_stack(tmp_path: Path) -> None:
    evidence, report = ran(tmp_path, "resnet")
    assert_half(evidence, "dense")
    batch_norm = evidence["outcomes"]["fused_batch_norm"]["message"]
    assert ("chosen for GPUs only" if evidence["stack"] == "keras3" else "FusedBatchNormV3 by itself") in batch_norm
    assert any("input channels 1 to 8" in change for change in evidence["measurements"]["tensor_cores"]["changes"])
    assert "What was gained not measured a ladder tells, section by section: tfvolta ladder" in report
    assert "What went wrong nothing" in report


def test_the_transformer_multiplies_in_float16_nearly_everywhere(tmp_path: Path) -> None:
    evidence, _ = ran(tmp_path, "transformer")
    (island,) = evidence["outcomes"]["float32_islands"]["observed"]["islands"]
    assert_half(evidence, island)
    cores = evidence["measurements"]["tensor_cores"]
    assert cores["served_percent"] > 50
    assert any(change.startswith(island) for change in cores["changes"])  # the scores of the characters stay float32


def test_the_lstm_is_left_to_cudnn_where_there_is_a_gpu(tmp_path: Path) -> None:
    evidence, _ = ran(tmp_path, "lstm")
    assert_half(evidence, "dense")
    cudnn = evidence["outcomes"]["cudnn_rnn"]["message"]
    assert ("chosen for GPUs only" if evidence["stack"] == "keras3" else "choose cuDNN by themselves") in cudnn
