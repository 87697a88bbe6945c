"""What an installed TensorFlow and its libraries can do on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tfvolta.facts.record import load
from tfvolta.facts.schema import Facts, Gpu, TensorFlowBuild
from tfvolta.facts.support import jit_compiled_gpus, missing_libraries, unsupported_gpus

TF_215 = ("sm_50", "sm_60", "sm_70", "sm_75", "compute_80")
TF_221 = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")


def changed(name: str = "v100_16gb", **fields: Any) -> Facts:
    return load(name).model_copy(update=fields)


def build(targets: tuple[str, ...], **fields: Any) -> TensorFlowBuild:
    return TensorFlowBuild(**{"version": "2.21.0", "compute_capabilities": targets, "cuda_version": "12.5.1", **fields})


def gpu(capability: tuple[int, int]) -> Gpu:
    return Gpu(index=0, name="GPU", memory_mb=1, compute_capability=capability)


@pytest.mark.parametrize(
    ("targets", "capability", "supported", "by_ptx"),
    [
        (TF_221, (7, 0), True, False),
        (TF_221, (7, 5), True, False),  # sm_70 serves the later minor version
        (TF_221, (5, 2), False, False),
        (TF_221, (8, 6), True, False),
        (TF_221, (9, 0), True, False),  # compute_90 holds a binary too
        (TF_221, (12, 0), True, True),
        (TF_215, (9, 0), True, True),
        (("sm_80", "sm_90"), (7, 0), False, False),
        (("sm_80", "sm_90"), (10, 0), False, False),
        (("compute_60",), (7, 0), True, True),
        (("7.0", "8.0"), (7, 0), True, False),
        (("sm_100a", "sm_90a"), (10, 0), True, False),
    ],
)
def test_architectures(targets: tuple[str, ...], capability: tuple[int, int], supported: bool, by_ptx: bool) -> None:
    facts = changed(gpus=(gpu(capability),), tensorflow=build(targets), libraries={}, driver="535.1")
    assert (unsupported_gpus(facts) == []) is supported
    assert bool(jit_compiled_gpus(facts)) is by_ptx


@pytest.mark.parametrize(
    ("version", "supported"),
    [("9.3.0.75", True), ("9.10.2.21", True), ("9.11.0.98", False), ("9.24", False), ("9", True), ("10.0.1", False)],
)
def test_cudnn_9_11_has_no_volta(version: str, supported: bool) -> None:
    facts = changed(libraries={"cudnn": version}, tensorflow=build(TF_221))
    problems = unsupported_gpus(facts)
    assert (problems == []) is supported
    if not supported:
        assert problems[0].fix == 'pip install "nvidia-cudnn-cu12>=9.3,<9.11"'
    assert unsupported_gpus(changed("h200_x2", libraries={"cudnn": version}, tensorflow=build(TF_221))) == []


def test_cudnn_of_another_major_version_is_not_opened() -> None:
    facts = changed(libraries={"cudnn": "9.10.2"}, tensorflow=build(TF_215, cudnn_version="8"))
    (problem,) = unsupported_gpus(facts)
    assert "cuDNN 8" in problem.expected and problem.fix == 'pip install "nvidia-cudnn-cu12>=8.9,<9"'


@pytest.mark.parametrize(
    "fields",
    [
        {"libraries": {"cuda_runtime": "13.0.88"}},
        {"packages": {"nvidia-cudnn-cu13": "9.10.2.21"}},
        {"tensorflow": build(TF_221, cuda_version="13.0")},
    ],
)
def test_cuda_13_has_no_volta(fields: dict[str, Any]) -> None:
    problems = unsupported_gpus(changed(**fields))
    assert [problem.where for problem in problems] == ["CUDA"] and "CUDA 13" in problems[0].why
    assert unsupported_gpus(changed("h200_x2", **fields)) == []


def test_driver_branches() -> None:
    assert unsupported_gpus(changed(driver="580.126.09")) == []
    (problem,) = unsupported_gpus(changed(driver="590.48.01"))
    assert "R580" in problem.expected and problem.fix.startswith("install a driver of branch R580")
    (problem,) = unsupported_gpus(changed(driver="470.256.02", cuda_driver="11.4"))
    assert "serves CUDA 11.4" in problem.received


def test_no_tensorflow_and_a_cpu_build() -> None:
    (problem,) = unsupported_gpus(changed(tensorflow=None))
    assert problem.fix.startswith("pip install")
    (problem,) = unsupported_gpus(changed(tensorflow=TensorFlowBuild(version="2.21.0")))
    assert problem.received == "a build for CPUs only" and "tensorflow[and-cuda]==2.21.0" in problem.fix
    assert unsupported_gpus(changed("cpu", tensorflow=None)) == []


def test_a_machine_of_equal_gpus_gets_each_problem_once_and_all_at_once() -> None:
    facts = changed("dgx2", driver="595.1", libraries={"cudnn": "9.12.0", "cublas": "13.1"})
    assert [problem.where for problem in unsupported_gpus(facts)] == ["cuDNN", "CUDA", "NVIDIA driver"]


def test_missing_libraries() -> None:
    assert missing_libraries(load("dgx1")) == []
    assert missing_libraries(changed(libraries={"cudnn": "9.10"})) == ["cuda_runtime", "cublas"]
    assert missing_libraries(changed("cpu", libraries={})) == []
