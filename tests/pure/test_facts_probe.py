"""Probing: fake roots and fake package folders; and that TensorFlow is never imported."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.pure.facts_machine import machine, write
from tfvolta.errors import FactsError
from tfvolta.facts.probe import checked_stack, probe


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
    assert float(seconds) < 5.0  # 0.1 s on an idle machine without a GPU; the bound is for a busy one


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
