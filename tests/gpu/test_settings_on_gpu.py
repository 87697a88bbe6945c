"""What settings do on a real GPU, each in a process of its own; without a GPU these tests say so and skip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _gpus() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return 0
    return done.stdout.count("GPU ")


pytestmark = pytest.mark.skipif(_gpus() == 0, reason="needs an NVIDIA GPU: nvidia-smi lists none")

CONVOLUTIONS = """
import json, sys, subprocess, os
import numpy as np
import tensorflow as tf
keras = tf.keras
L = keras.layers
x = np.random.RandomState(0).randn(256, 32, 32, 3).astype("float32")
y = np.random.RandomState(1).randint(0, 10, 256).astype("int32")
layers = [L.Conv2D(32, 3, padding="same"), L.BatchNormalization(), L.ReLU(), L.Conv2D(32, 3)]
layers += [] if len(layers) == 1 else [L.GlobalAveragePooling2D()]
model = keras.Sequential([keras.Input((32, 32, 3)), *layers, L.Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=64, epochs=2, verbose=0)
query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
used = subprocess.run(query, capture_output=True, text=True)
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
maps = sorted({line.split()[-1].split("/")[-1] for line in open("/proc/self/maps") if "libcudnn" in line})
seen = {"used_mb": [int(v) for v in used.stdout.split()], "threads": sorted(set(names)), "cudnn": maps}
print("SEEN " + json.dumps(seen))
"""


def _run(
    folder: Path, *settings: str, script: str = CONVOLUTIONS, config: str = "empty.yaml"
) -> tuple[Any, dict[str, Any]]:
    (folder / "empty.yaml").write_text("run: {strict: false}\n")
    path = folder / "train.py"
    path.write_text(textwrap.dedent(script))
    options = [part for setting in settings for part in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "tfvolta",
        "run",
        "--config",
        str(folder / config),
        "--directory",
        str(folder / "runs"),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [*command, *options, str(path)], capture_output=True, text=True, timeout=280, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("SEEN "))[5:])
    evidence = json.loads(next((folder / "runs").glob("*/evidence.json")).read_text())
    return seen, evidence


def test_memory_growth_and_private_threads_and_model_jit(tmp_path: Path) -> None:
    seen, evidence = _run(
        tmp_path,
        "devices={memory_growth: true, gpu_thread_mode: gpu_private, gpu_threads: 2}",
        "mixed_precision.policy=mixed_float16",
        "xla.jit=auto",
    )
    outcomes = evidence["outcomes"]
    assert outcomes["memory_growth"]["status"] == "APPLIED"
    assert min(seen["used_mb"]) < 20_000, "without growth TensorFlow takes nearly all of the card"
    assert outcomes["gpu_thread_mode"]["status"] == "UNVERIFIABLE", outcomes["gpu_thread_mode"]
    assert outcomes["jit"]["status"] == "APPLIED" and outcomes["jit"]["observed"]["compiled"] is True
    assert outcomes["retrofit"]["observed"]["products"]["float16"] > 0
    memory = evidence["measurements"]["memory"]
    assert memory["peak_bytes"], "the allocator's peak is measured on a GPU"


def test_hard_limit(tmp_path: Path) -> None:
    seen, evidence = _run(tmp_path, "devices.memory_limit_mb=3000", "xla.jit='off'")
    assert evidence["outcomes"]["memory_limit"]["status"] == "APPLIED"
    assert max(seen["used_mb"]) < 12_000
    assert max(evidence["measurements"]["memory"]["peak_bytes"].values()) <= 3000 * 2**20


def test_workspace_and_autotune_without_xla(tmp_path: Path) -> None:
    seen, evidence = _run(tmp_path, "cudnn={workspace_limit_mb: 64, autotune: true}", "xla.jit='off'")
    for name in ("cudnn_workspace", "cudnn_autotune"):
        assert evidence["outcomes"][name]["status"] in ("APPLIED", "UNVERIFIABLE"), evidence["outcomes"][name]
    assert any(name.startswith(("libcudnn_cnn", "libcudnn_engines")) for name in seen["cudnn"]), seen["cudnn"]


def test_async_allocator(tmp_path: Path) -> None:
    _, evidence = _run(tmp_path, "devices.allocator=cuda_malloc_async", "xla.jit='off'")
    assert evidence["outcomes"]["allocator"]["status"] in ("APPLIED", "UNVERIFIABLE"), evidence["outcomes"]["allocator"]


def test_clustering(tmp_path: Path) -> None:
    _, evidence = _run(tmp_path, "xla.jit=clustering")
    assert evidence["outcomes"]["auto_clustering"]["status"] == "APPLIED", evidence["outcomes"]["auto_clustering"]


def test_layout_optimizer_and_tf32(tmp_path: Path) -> None:
    _, evidence = _run(tmp_path, "graph.layout_optimizer=false", "math.tf32=false", "xla.jit='off'")
    assert evidence["outcomes"]["layout_optimizer"]["status"] == "APPLIED", evidence["outcomes"]["layout_optimizer"]
    assert evidence["outcomes"]["tf32"]["status"] in ("APPLIED", "NOT_APPLICABLE")
    assert evidence["facts"]["gpus"][0]["compute_capability"]


def test_the_retrofit_of_an_lstm_leaves_xla_off(tmp_path: Path) -> None:
    script = CONVOLUTIONS.replace(
        "layers = [L.Conv", "x = x.reshape(256, 32, 96)\nlayers = [L.LSTM(32)] or [L.Conv"
    ).replace("keras.Input((32, 32, 3))", "keras.Input((32, 96))")
    _, evidence = _run(tmp_path, "mixed_precision.policy=mixed_float16", "xla.jit=auto", script=script)
    jit = evidence["outcomes"]["jit"]
    assert jit["status"] == "APPLIED" and jit["observed"]["compiled"] is False and "LSTM" in jit["message"]


@pytest.mark.skipif(_gpus() < 2, reason="needs two NVIDIA GPUs")
def test_mirrored_on_two_gpus(tmp_path: Path) -> None:
    _, evidence = _run(
        tmp_path,
        "strategy.kind=mirrored",
        "communication={implementation: nccl, num_packs: 2}",
        "mixed_precision.policy=mixed_float16",
        "xla.jit='off'",
    )
    outcomes = evidence["outcomes"]
    assert outcomes["strategy"]["status"] == "APPLIED" and outcomes["strategy"]["observed"]["replicas"] == 2
    assert outcomes["communication"]["status"] == "APPLIED", outcomes["communication"]
    assert outcomes["loss_scale"]["status"] == "APPLIED"
