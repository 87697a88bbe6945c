"""Two GPUs, each with a compiled step of its own, train as one does. Skips itself, and says so, with fewer GPUs.

``python -m tests.gpu.test_replicas_gpu`` runs it without pytest and prints what was seen.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from typing import Any, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 600.0
LOOSER = {"adam": 1e-3, "mixed": 3e-2}
STACKS = ("keras3", "tf_keras") if importlib.util.find_spec("tf_keras") else ("keras2",)


def gpus() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return 0
    return done.stdout.count("GPU ")


try:
    import pytest

    pytestmark = [
        pytest.mark.skipif(gpus() < 2, reason="needs two NVIDIA GPUs: nvidia-smi lists fewer"),
        pytest.mark.timeout(2 * LIMIT),
    ]
except ImportError:  # run as a program on a host without pytest
    pass


def environment(stack: str, **more: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("TF_USE_LEGACY_KERAS", "TF_CONFIG")}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environ.get("PYTHONPATH")])])
    return {**environ, **({"TF_USE_LEGACY_KERAS": "1"} if stack == "tf_keras" else {}), **more}


def start(stack: str, folder: str, **more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.gpu.replica_runs_gpu"]
    return subprocess.Popen(
        command, cwd=folder, env=environment(stack, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    lines = [line for line in out.splitlines() if line.startswith("RESULT ")]
    assert process.returncode == 0 and lines, err[-4000:]
    found: dict[str, Any] = json.loads(lines[-1][len("RESULT ") :])
    return found


def mirrored(stack: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return result(start(stack, folder, CUDA_VISIBLE_DEVICES="0,1"))


def workers(stack: str) -> list[dict[str, Any]]:
    """Two workers with one GPU each."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for index in range(2):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            processes.append(start(stack, folder, TF_CONFIG=json.dumps(task), CUDA_VISIBLE_DEVICES=str(index)))
        try:
            return [result(process) for process in processes]
        finally:
            for process in processes:
                process.kill()


def check_planned(found: Mapping[str, Any], devices: list[str]) -> None:
    """What tfvolta's own fit showed: compiled on every device, gradients in packs through NCCL, copies equal."""
    outcomes = found["planned"]["outcomes"]
    for name in ("strategy", "communication", "jit"):
        assert outcomes[name]["status"] == "APPLIED", outcomes[name]
    assert outcomes["jit"]["observed"]["compiled"] is True
    assert outcomes["jit"]["observed"]["compiled_on"] == devices
    seen = outcomes["communication"]["observed"]
    assert set(seen["hints"]) == {"CollectiveReduceV2[nccl]"} and seen["packs"] == 3 and seen["compiled"]
    assert found["planned"]["spread"] == 0.0


def check_mirrored(found: Mapping[str, Any]) -> None:
    assert found["replicas"] == 2
    check_planned(found, ["GPU:0", "GPU:1"])
    for name, case in found.items():
        if name in ("replicas", "planned", "reduction"):
            continue
        assert case["difference"] <= LOOSER.get(name, 1e-4), (name, case)
        assert case["compiled_on"] == ["GPU:0", "GPU:1"], (name, case)
        for key in ("applied", "skipped", "scale"):
            assert case["replicas"][key] == case["alone"][key], (name, key)
    assert found["overflow on the last"]["replicas"]["skipped"] == 1
    check_reduction(found["reduction"])


def check_reduction(found: Mapping[str, Any]) -> None:
    """Windows of three batches, and gradients that NCCL sums as float16 in the compiled step."""
    for name, case in found.items():
        assert case["difference"] <= (3e-3 if "half" in name else 1e-5), (name, case)
        assert case["compiled_on"] == ["GPU:0", "GPU:1"], (name, case)
        operations, taken_in, _ = case["graphs"]["update"]
        dtype, size = ("float16", 98) if "half" in name else ("float32", 196)
        assert operations == {f"CollectiveReduceV2[{dtype}]": 2} and taken_in == size, (name, case)
        if "window" in name:
            assert (case["batches"], case["updates"], case["applied"]) == (12, 4, 4), (name, case)
            assert case["graphs"]["accumulate"][0] == {}, (name, case)


def check_workers(found: list[dict[str, Any]]) -> None:
    assert [each["replicas"] for each in found] == [2, 2]
    for each in found:
        check_planned(each, ["GPU:0"])
    assert found[0]["planned"]["sums"] == found[1]["planned"]["sums"]


if "pytest" in sys.modules:

    @pytest.mark.parametrize("stack", STACKS)
    def test_two_gpus_train_as_one_with_compiled_steps(stack: str) -> None:
        check_mirrored(mirrored(stack))

    @pytest.mark.parametrize("stack", STACKS)
    def test_two_workers_with_a_gpu_each_reduce_by_nccl_in_compiled_steps(stack: str) -> None:
        check_workers(workers(stack))


if __name__ == "__main__":
    for each in STACKS:
        for run, check in ((mirrored, check_mirrored), (workers, check_workers)):
            seen: Any = run(each)
            print(each, run.__name__, json.dumps(seen), flush=True)
            check(seen)
            print(each, run.__name__, "passed", flush=True)
