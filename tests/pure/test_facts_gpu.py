# ruff: noqa: N802 (NVML's own names)
"""GPUs and links through NVML and nvidia-smi, and through broken ones."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest

from tests.pure.facts_machine import machine, smi, write
from tfvolta.facts.probe import probe

DGX1_ROW = "{i}, Tesla V100-SXM2-32GB, 32510, 7.0, GPU-{i}{i}, 00000000:0{i}:00.0, 3, 16, 535.183.06"


def test_gpus_through_nvidia_smi(tmp_path: pathlib.Path) -> None:
    rows = "\n".join(DGX1_ROW.format(i=i) for i in range(2))
    environ = smi(
        tmp_path,
        f"""\
        case "$1" in
        --query-gpu=*) cat <<'END'
        {rows.replace(chr(10), chr(10) + "        ")}
        END
        ;;
        topo) printf '\\t\\033[4mGPU0\\tGPU1\\tCPU\\033[0m\\nGPU0\\t X \\tNV2\\t0-9\\nGPU1\\tNV2\\t X \\t0-9\\n' ;;
        -q) echo '    CUDA Version                          : 12.2' ;;
        esac
        """,
    )
    facts = probe({**environ, "CUDA_VISIBLE_DEVICES": "1"}, str(machine(tmp_path)), path=[])
    assert [(gpu.index, gpu.memory_mb, gpu.compute_capability) for gpu in facts.gpus] == [
        (0, 32510, (7, 0)),
        (1, 32510, (7, 0)),
    ]
    assert [(link.a, link.b, link.kind) for link in facts.links] == [(0, 1, "NV2")]
    assert (facts.driver, facts.cuda_driver) == ("535.183.06", "12.2")
    assert any(note.startswith("CUDA_VISIBLE_DEVICES=1 hides GPU 0 ") for note in facts.notes)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18\n", "version mismatch"),
        ("echo '0, Tesla V100, [N/A], [N/A]'\n", "cannot be read"),
        ("exec sleep 60\n", "no answer in 0.2 s"),
    ],
)
def test_a_broken_nvidia_smi_is_one_note(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr("tfvolta.facts.gpu.TIMEOUT_SECONDS", 0.2 if "sleep" in script else 30.0)
    started = time.monotonic()
    facts = probe(smi(tmp_path, script), str(machine(tmp_path)), path=[])
    assert facts.gpus == ()
    assert sum(words in note for note in facts.notes) == 1
    assert time.monotonic() - started < 30


def test_an_nvidia_smi_that_is_no_program_is_a_note(tmp_path: pathlib.Path) -> None:
    tool = write(tmp_path, "bin/nvidia-smi", "\x7fELF and nothing more")
    tool.chmod(0o755)
    facts = probe({"PATH": str(tool.parent)}, str(machine(tmp_path)), path=[])
    assert any(note.startswith("GPU: nvidia-smi cannot be run") for note in facts.notes)


class FakeNvml:
    """NVML of a machine with GPUs; ``ends`` says where each GPU's NVLinks lead."""

    def __init__(self, ends: list[list[Any]], level: int = 50):
        self.ends, self.level = ends, level

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            raise RuntimeError("Not Supported")
        raise AttributeError(name)

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 7, 0

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Tesla V100-SXM2-32GB"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return type("Memory", (), {"total": 32510 * 2**20})()

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return type("Pci", (), {"busId": f"00000000:0{handle}:00.0"})()

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12020

    def nvmlSystemGetDriverVersion(self) -> str:
        return "535.183.06"

    def nvmlDeviceGetNvLinkState(self, handle: int, number: int) -> int:
        if number >= len(self.ends[handle]):
            raise RuntimeError("Invalid Argument")
        return int(self.ends[handle][number] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, number: int) -> int:
        end = self.ends[handle][number]
        return 2 if end == "switch" else 255 if end == "hidden" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, number: int) -> Any:
        end = self.ends[handle][number]
        bus = "0000FFFF:FF:00.0" if end == "hidden" else f"00000000:0{end}:00.0"
        return type("Pci", (), {"busId": bus})()

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return self.level


def read_with(nvml: FakeNvml, environ: dict[str, str]) -> Any:
    from tfvolta.facts.gpu import read_gpus

    notes: list[str] = []
    return read_gpus(environ, notes, nvml), notes


def test_nvml_counts_direct_links_and_names_the_way_over_pcie() -> None:
    reading, notes = read_with(FakeNvml([[1, 1, None], [0, 0, None], [None]]), {"PATH": ""})
    assert [(link.a, link.b, link.kind) for link in reading.links] == [(0, 1, "NV2"), (0, 2, "SYS"), (1, 2, "SYS")]
    assert (reading.driver, reading.cuda_driver, reading.gpus[0].name) == ("535.183.06", "12.2", "Tesla V100-SXM2-32GB")
    assert reading.gpus[0].uuid is None and notes == []


def test_nvml_behind_a_switch_joins_every_pair() -> None:
    reading, _ = read_with(FakeNvml([["switch"] * 6] * 3), {"PATH": ""})
    assert {link.kind for link in reading.links} == {"NV6"} and len(reading.links) == 3


def test_links_that_nvml_hides_come_from_nvidia_smi(tmp_path: pathlib.Path) -> None:
    environ = smi(tmp_path, "printf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV18\\nGPU1\\tNV18\\t X \\n'\n")
    reading, notes = read_with(FakeNvml([["hidden"] * 18] * 2), environ)
    assert [link.kind for link in reading.links] == ["NV18"]
    assert any("nvidia-smi topo -m serves instead" in note for note in notes)


def test_an_nvml_that_cannot_start_is_a_note(tmp_path: pathlib.Path) -> None:
    nvml = FakeNvml([[]])
    nvml.nvmlInit = lambda: (_ for _ in ()).throw(RuntimeError("Driver/library version mismatch"))  # type: ignore
    reading, notes = read_with(nvml, {"PATH": ""})
    assert reading.gpus == () and "GPU: NVML cannot start (Driver/library version mismatch)" in notes
