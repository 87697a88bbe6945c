"""What was meant by a fault that people really make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.config_case import complete, one, problems_of
from tfvolta.config.catalogue import settings
from tfvolta.config.spellings import NAMED_VALUES, SPELLINGS

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("memory_growth: true", "devices: {memory_growth: true}"),
        ("devices: {memory_limit_mb: 12GB}", "memory_limit_mb: 12288"),
        ("devices: {memory_limit_mb: 12 GiB}", "memory_limit_mb: 12288"),
        ("devices: {memory_limit_mb: '12288'}", "memory_limit_mb: 12288"),
        ("devices: {memory_limit_mb: 12_288}", "memory_limit_mb: 12288"),
        ("devices: {memory_limit_mb: 0.5G}", "memory_limit_mb: 512"),
        ("devices: {memory_limit: 4096MB}", "memory_limit_mb: 4096"),
        ("devices: {memory_limit_gb: 12}", "memory_limit_mb: 12288"),
        ("devices: {memory_limit_bytes: 12884901888}", "memory_limit_mb: 12288"),
        ("cudnn: {workspace_limit_gb: 1}", "workspace_limit_mb: 1024"),
        ("cudnn: {workspace_limit: 1}", "in MiB"),
        ("cudnn: {TF_CUDNN_WORKSPACE_LIMIT_IN_MB: 512}", "workspace_limit_mb: 512"),
        ("communication: {timeout: 10min}", "timeout_seconds: 600"),
        ("communication: {timeout_minutes: 10}", "timeout_seconds: 600"),
        ("communication: {timeout_ms: 1500}", "timeout_seconds: 1.5"),
        ("communication: {bytes_per_pack: 33554432}", "pack_mb: 32"),
        ("mixed_precision: {enabled: true}", "policy: mixed_float16"),
        ("mixed_precision: {enabled: false}", "policy: float32"),
        ("mixed_precision: true", "mixed_precision: {policy: mixed_float16}"),
        ("mixed_precision: {policy: mixed_fp16}", "policy: mixed_float16"),
        ("mixed_precision: {policy: float16}", "policy: mixed_float16"),
        ("mixed_precision: {policy: bf16}", "policy: mixed_bfloat16"),
        ("mixed_precision: {policy: 16}", "policy: mixed_float16"),
        ("mixed_precision: {float32_layers: Softmax}", "float32_layers: [Softmax]"),
        ("mixed_precision: {initial_scale: 1024}", "loss_scale: {initial: 1024}"),
        ("mixed_precision: {loss_scale: 1024}", "loss_scale: {initial: 1024}"),
        ("fp16: true", "mixed_precision: {policy: mixed_float16}"),
        ("bf16: true", "mixed_precision: {policy: mixed_bfloat16}"),
        ("xla: true", "xla: {jit: auto}"),
        ("xla: off", "xla: {jit: off}"),
        ("xla: {jit: true}", "jit: auto"),
        ("xla: {jit: false}", "jit: off"),
        ("xla: {jit_compile: true}", "jit: model"),
        ("xla: {flags: xla_gpu_autotune_level=4}", "flags: [--xla_gpu_autotune_level=4]"),
        ("xla: {flags: '--a=1 --b=2'}", "flags: [--a=1, --b=2]"),
        ("strategy: mirrored", "strategy: {kind: mirrored}"),
        ("strategy: {kind: MirroredStrategy}", "kind: mirrored"),
        ("strategy: {kind: MultiWorkerMirroredStrategy}", "kind: multi_worker_mirrored"),
        ("strategy: {devices: [GPU:0, 1]}", "devices: [GPU:0, GPU:1]"),
        ("nccl: {algorithm: ring}", "algorithm: Ring"),
        ("nccl: {NCCL_SOCKET_IFNAME: eth0}", "socket_interface: eth0"),
        ("devices: {visible: '0,1'}", "visible: [0, 1]"),
        ("devices: {visible: 0}", "visible: [0]"),
        ("devices: {visible: -1}", "visible: []"),
        ("CUDA_VISIBLE_DEVICES: '0,1'", "devices: {visible: [0, 1]}"),
        ("devices: {memory_growth: on}", "memory_growth: true"),
        ("devices: {memory_growth: 'false'}", "memory_growth: false"),
        ("devices: {memory_growth: 1}", "memory_growth: true"),
        ("devices: {gpu_threads: 2.0}", "gpu_threads: 2"),
        ("devices: {MemoryGrowth: true}", "memory_growth: true"),
        ("devices: {memory-growth: true}", "memory_growth: true"),
        ("xla.jit: auto", "xla: {jit: auto}"),
        ("xla: {cudnn: {autotune: true}}", "cudnn: {autotune: true}"),
        ("seed: 3", "run: {seed: 3}"),
    ],
)  # fmt: skip
def test_what_was_meant(text: str, fix: str) -> None:
    problem = one(text)
    assert complete(problem)
    assert problem.fix.endswith(fix) or f"{fix};" in problem.fix, problem


def test_a_bare_number_without_its_unit_is_not_guessed() -> None:
    problem = one("cudnn: {workspace_limit: 1}")
    assert "did you mean cudnn.workspace_limit_mb?" in problem.fix
    assert "workspace_limit_mb: 1," not in problem.fix


def test_a_key_like_none_lists_what_there_is() -> None:
    problem = one("qqqq: 1")
    assert "mixed_precision" in problem.expected and "remove qqqq" in problem.fix


def test_yaml_1_2_booleans() -> None:
    problem = one("devices:\n  memory_growth: yes\n")
    assert problem.received == "yes, a string" and "YAML 1.2" in problem.why and problem.fix == "memory_growth: true"
    assert one("%YAML 1.1\n---\nrun: {strict: on}\n").received == "on, a string"
    assert problems_of("xla: {jit: off}") == ()


def test_items_of_lists_have_their_own_lines() -> None:
    found = problems_of("devices:\n  visible:\n    - 0\n    - one\n    - -2\n")
    assert [problem.where for problem in found] == ["a.yaml:4: devices.visible[1]", "a.yaml:5: devices.visible[2]"]
    assert found[0].received == "one, a string" and found[0].expected == "a whole number (0 or more)"


def test_duplicate_keys_are_all_told_with_both_lines() -> None:
    found = problems_of("xla:\n  jit: off\n  jit: auto\nrun: {}\nxla: {}\nrun: {}\n")
    assert [problem.where for problem in found] == ["a.yaml:3: xla.jit", "a.yaml:5: xla", "a.yaml:6: run"]
    assert "a.yaml:2 and a.yaml:3" in found[0].received
    assert all(complete(problem) for problem in found)


def test_spellings_lead_to_keys_that_exist() -> None:
    assert set(SPELLINGS.values()) <= set(settings())
    for word, value in NAMED_VALUES.items():
        assert settings()[SPELLINGS[word]].accepts(value)
