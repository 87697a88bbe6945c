# ruff: noqa: N802 (NVML's own names)
"""Probing: fake roots, fake tools and fake package folders; and that TensorFlow is never imported."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from tfvolta.errors import FactsError
from tfvolta.facts.probe import checked_stack, probe

DGX1_ROW = "{i}, Tesla V100-SXM2-32GB, 32510, 7.0, GPU-{i}{i}, 00000000:0{i}:00.0, 3, 16, 535.183.06"


def write(root: pathlib.Path, name: str, text: str) -> pathlib.Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def machine(root: pathlib.Path) -> pathlib.Path:
    write(root, "proc/cpuinfo", "".join(f"processor\t: {i}\nmodel name\t: Xeon E5-2698 v4\n\n" for i in range(4)))
    write(root, "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    write(root, "proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-1,3\n")
    write(root, "proc/sys/kernel/hostname", "node7\n")
    return root


def smi(folder: pathlib.Path, script: str) -> dict[str, str]:
    tool = write(folder, "bin/nvidia-smi", "#!/bin/sh\n" + textwrap.dedent(script))
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:/usr/bin:/bin"}


def distribution(site: pathlib.Path, name: str, version: str) -> None:
    write(site, f"{name.replace('-', '_')}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")


def wheel(site: pathlib.Path, build_info: str) -> None:
    # A package that fails when it is imported: probing must not import it.
    write(site, "tensorflow/__init__.py", "raise RuntimeError('imported')\n")
    write(site, "tensorflow/python/platform/build_info.py", build_info)


GPU_BUILD = """
import collections
build_info = collections.OrderedDict([('cpu_compiler', 'clang'), ('cuda_compute_capabilities', ['sm_70', 'compute_80']),
  ('cuda_version', '12.2'), ('cudnn_version', '8'), ('is_cuda_build', True)])
"""


def test_probe_imports_neither_tensorflow_nor_keras_and_is_quick() -> None:
    code = (
        "import sys, time; from tfvolta.facts.probe import probe; start = time.perf_counter(); facts = probe();"
        "print(time.perf_counter() - start);"
        "print([name for name in sys.modules if name.split('.')[0] in ('tensorflow', 'keras', 'tf_keras', 'numpy')])"
    )
    root = str(pathlib.Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": root}
    )
    seconds, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert float(seconds) < 5.0  # 0.1 s on an idle machine without a GPU; the bound allows for a busy one


def test_processors_memory_affinity_and_host_come_from_the_root(tmp_path: pathlib.Path) -> None:
    facts = probe({"PATH": ""}, str(machine(tmp_path)), path=[])
    assert (facts.host, facts.cpu.cores, facts.cpu.cores_allowed, facts.cpu.memory_mb) == ("node7", 4, 3, 16384)
    assert facts.cpu.cores_limit is None and facts.cpu.memory_limit_mb is None and facts.cpu.usable_cores == 3.0


def test_cgroup_2_limits_of_a_parent_bind(tmp_path: pathlib.Path) -> None:
    machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/job/step\n")
    write(tmp_path, "sys/fs/cgroup/job/step/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/job/step/memory.max", f"{8 * 2**30}\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.max", f"{2 * 2**30}\n")
    cpu = probe({"PATH": ""}, str(tmp_path), path=[]).cpu
    assert (cpu.cores_limit, cpu.memory_limit_mb, cpu.usable_cores) == (1.5, 2048, 1.5)


def test_cgroup_2_in_a_container_whose_path_is_the_hosts(tmp_path: pathlib.Path) -> None:
    machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/kubepods/pod1/container\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "200000 100000\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    cpu = probe({"PATH": ""}, str(tmp_path), path=[]).cpu
    assert (cpu.cores_limit, cpu.memory_limit_mb) == (2.0, None)


def test_cgroup_1_limits_and_its_number_for_no_limit(tmp_path: pathlib.Path) -> None:
    machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
    write(tmp_path, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n")
    cpu = probe({"PATH": ""}, str(tmp_path), path=[]).cpu
    assert (cpu.cores_limit, cpu.memory_limit_mb) == (0.5, None)
    write(tmp_path, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{2**30}\n")
    assert probe({"PATH": ""}, str(tmp_path), path=[]).cpu.memory_limit_mb == 1024


def test_a_root_without_proc_gives_notes_and_no_exception(tmp_path: pathlib.Path) -> None:
    facts = probe({"PATH": ""}, str(tmp_path), path=[])
    assert facts.cpu.cores >= 1 and facts.cpu.memory_mb > 1
    assert sum(note.startswith("processors:") for note in facts.notes) == 1
    assert sum(note.startswith("memory:") for note in facts.notes) == 1


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


def test_the_wheel_is_read_and_never_imported(tmp_path: pathlib.Path) -> None:
    site = tmp_path / "site"
    wheel(site, GPU_BUILD)
    for name, version in [("tensorflow-cpu", "2.15.1"), ("keras", "2.15.0"), ("nvidia-cudnn-cu12", "8.9.4.25")]:
        distribution(site, name, version)
    facts = probe({"PATH": ""}, str(machine(tmp_path)), path=[str(site)])
    assert facts.tensorflow is not None
    assert facts.tensorflow.version == "2.15.1"
    assert facts.tensorflow.compute_capabilities == ("sm_70", "compute_80")
    assert (facts.tensorflow.cuda_version, facts.tensorflow.cudnn_version) == ("12.2", "8")
    assert facts.stack == "keras2" and facts.libraries == {"cudnn": "8.9.4.25"}
    assert facts.packages == {"keras": "2.15.0", "nvidia-cudnn-cu12": "8.9.4.25", "tensorflow-cpu": "2.15.1"}


def test_a_cpu_build_has_no_targets_and_an_odd_one_a_note(tmp_path: pathlib.Path) -> None:
    site = tmp_path / "site"
    distribution(site, "tensorflow", "2.17.0+nv25.2")
    wheel(site, "build_info = {'is_cuda_build': False}")
    facts = probe({"PATH": ""}, str(machine(tmp_path)), path=[str(site)])
    assert facts.tensorflow is not None and facts.tensorflow.version == "2.17.0+nv25.2"
    assert facts.tensorflow.compute_capabilities == ()
    wheel(site, "build_info = open('/etc/passwd').read()")
    facts = probe({"PATH": ""}, str(machine(tmp_path)), path=[str(site)])
    assert any(note.startswith("TensorFlow build:") for note in facts.notes)


def test_no_tensorflow_is_a_note(tmp_path: pathlib.Path) -> None:
    facts = probe({"PATH": ""}, str(machine(tmp_path)), path=[str(tmp_path)])
    assert facts.tensorflow is None and any(note.startswith("TensorFlow: no package") for note in facts.notes)


def test_ld_library_path_wins_over_the_package_and_says_so(tmp_path: pathlib.Path) -> None:
    site = tmp_path / "site"
    wheel(site, GPU_BUILD.replace("'8'", "'9'"))
    distribution(site, "tensorflow", "2.21.0")
    distribution(site, "nvidia-cudnn-cu12", "9.10.2.21")
    write(tmp_path, "opt/cudnn/libcudnn.so.9", "")
    write(tmp_path, "opt/cudnn/libcudnn.so.9.12.0", "")
    write(tmp_path, "usr/local/cuda/lib64/libcudart.so.13", "")
    environ = {"PATH": "", "LD_LIBRARY_PATH": "/opt/cudnn"}
    facts = probe(environ, str(machine(tmp_path)), path=[str(site)])
    assert facts.libraries == {"cudnn": "9.12.0"}
    assert any("9.12.0 is loaded" in note and "9.10.2.21" in note for note in facts.notes)
    assert any("opens version 12 only" in note for note in facts.notes)


def test_a_package_folder_in_ld_library_path_tells_the_packages_version(tmp_path: pathlib.Path) -> None:
    site = tmp_path / "other/site-packages"
    write(site, "nvidia/cudnn/lib/libcudnn.so.9", "")
    distribution(site, "nvidia-cudnn-cu12", "9.11.0.98")
    environ = {"PATH": "", "LD_LIBRARY_PATH": "/other/site-packages/nvidia/cudnn/lib"}
    assert probe(environ, str(machine(tmp_path)), path=[]).libraries == {"cudnn": "9.11.0.98"}


def test_container_variables_serve_where_nothing_else_does(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "usr/lib/x86_64-linux-gnu/libcudnn.so.9", "")
    environ = {"PATH": "", "CUDNN_VERSION": "9.7.0.66", "NCCL_VERSION": "2.25.1", "CUDA_VERSION": "12.8.0.038"}
    libraries = probe(environ, str(machine(tmp_path)), path=[]).libraries
    assert libraries == {"cudnn": "9.7.0.66", "nccl": "2.25.1", "cuda_runtime": "12.8.0.038"}


@pytest.mark.parametrize(
    ("value", "stack", "noted"),
    [(None, "keras3", False), ("1", "tf_keras", False), ("true", "tf_keras", False), ("0", "keras3", False),
     ("yes", "keras3", True), ("TRUE", "keras3", True)],
)  # fmt: skip
def test_the_stack_follows_tensorflows_own_reading(
    tmp_path: pathlib.Path, value: str | None, stack: str, noted: bool
) -> None:
    site = tmp_path / "site"
    for name, version in [("tensorflow", "2.21.0"), ("keras", "3.15.1"), ("tf_keras", "2.21.0")]:
        distribution(site, name, version)
    environ = {"PATH": ""} if value is None else {"PATH": "", "TF_USE_LEGACY_KERAS": value}
    facts = probe(environ, str(machine(tmp_path)), path=[str(site)])
    assert facts.stack == stack and any("TF_USE_LEGACY_KERAS" in note for note in facts.notes) is noted


@pytest.mark.parametrize(("name", "meant"), [("keras-3", "keras3"), ("tfkeras", "tf_keras"), ("Keras2", "keras2")])
def test_an_unknown_stack_names_the_three_and_the_likely_one(name: str, meant: str) -> None:
    with pytest.raises(FactsError) as caught:
        probe({"PATH": ""}, stack=name, path=[])
    assert "keras3, tf_keras, keras2" in str(caught.value) and f"did you mean {meant}?" in str(caught.value)
    assert checked_stack(meant) == meant
