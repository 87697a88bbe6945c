"""Whether the installed TensorFlow and its CUDA libraries have code for the GPUs of a machine.

An unsupported pair fails late and obscurely: kernels that do not exist on the device, cuDNN calls that return
CUDNN_STATUS_ARCH_MISMATCH, or a silent fall-back to the CPU. So plans look first.

Source: NVIDIA CUDA C++ Programming Guide, "Application Compatibility" (which binaries run where); TensorFlow's wheels
(``build_info.py``); CUDA Toolkit 13.0 release notes, "Deprecated Architectures" (Volta and older cannot be targeted);
NVIDIA data center driver documentation (R580 is the last branch with Volta, long-term support until June 2028);
pytorch/pytorch#165773 and conda-forge/cudnn-feedstock#124 (cuDNN 9.11 removed compute capabilities below 7.5).
"""

from __future__ import annotations

import re
from typing import Callable, Iterator

from tfvolta.errors import Problem
from tfvolta.facts.libraries import parse_version
from tfvolta.facts.schema import Facts, Gpu, TensorFlowBuild

_TURING = (7, 5)
_CUDNN_WITHOUT_VOLTA = (9, 11)
_CUDA_WITHOUT_VOLTA = 13
_LAST_DRIVER_BRANCH = 580
_CUDNN_FIX = {
    8: 'pip install "nvidia-cudnn-cu12>=8.9,<9"',
    9: 'pip install "nvidia-cudnn-cu12>=9.3,<9.11"',
}


def unsupported_gpus(facts: Facts) -> list[Problem]:
    """Every reason why this TensorFlow cannot use these GPUs well; empty where all fits or there is no GPU.

    Args:
        facts: Of this machine or a recorded one.
    """
    if not facts.gpus:
        return []
    models = {(gpu.name, gpu.compute_capability): gpu for gpu in reversed(facts.gpus)}
    gpus = [models[key] for key in sorted(models)]
    return [problem for check in _CHECKS for problem in check(facts, gpus)]


def missing_libraries(facts: Facts) -> list[str]:
    """Libraries without which TensorFlow leaves the GPUs alone and says so only in its log.

    Returns:
        Names as in ``facts.libraries``; empty without GPUs, and for wheels that use no CUDA.
    """
    if not facts.gpus or facts.tensorflow is None or not facts.tensorflow.cuda_version:
        return []
    return [name for name in ("cuda_runtime", "cublas", "cudnn") if name not in facts.libraries]


def jit_compiled_gpus(facts: Facts) -> list[Gpu]:
    """GPUs for which the wheel has only PTX: the driver compiles every kernel on its first use, minutes in all."""
    build = facts.tensorflow
    if build is None:
        return []
    return [
        gpu
        for gpu in facts.gpus
        if _has_ptx(build, gpu.compute_capability) and not _has_binary(build, gpu.compute_capability)
    ]


def _targets(build: TensorFlowBuild, prefix: str) -> list[tuple[int, int]]:
    """TensorFlow's build takes sm_XY for a binary alone, and compute_XY or X.Y for a binary with PTX (configure.py)."""
    found = [re.fullmatch(prefix + r"_(\d+)(\d)a?", target) for target in build.compute_capabilities]
    plain = [re.fullmatch(r"(\d+)\.(\d)", target) for target in build.compute_capabilities if prefix == "compute"]
    return [(int(match.group(1)), int(match.group(2))) for match in found + plain if match]


def _has_binary(build: TensorFlowBuild, capability: tuple[int, int]) -> bool:
    """A binary runs on its own major version from its minor version on: sm_80 on 8.6, but neither on 7.5 nor 9.0."""
    targets = _targets(build, "sm") + _targets(build, "compute")
    return any(major == capability[0] and minor <= capability[1] for major, minor in targets)


def _has_ptx(build: TensorFlowBuild, capability: tuple[int, int]) -> bool:
    """PTX can be compiled for any later architecture."""
    return any(target <= capability for target in _targets(build, "compute"))


def _label(gpu: Gpu) -> str:
    return f"{gpu.name} (compute capability {gpu.compute_capability[0]}.{gpu.compute_capability[1]})"


def _is_volta_or_older(gpu: Gpu) -> bool:
    return gpu.compute_capability < _TURING


def _architecture(facts: Facts, gpus: list[Gpu]) -> Iterator[Problem]:
    build = facts.tensorflow
    if build is None:
        yield Problem(
            where="TensorFlow",
            expected="an installed TensorFlow with code for the GPUs",
            received="no TensorFlow in this Python environment",
            fix='pip install "tensorflow[and-cuda]==2.21.*"',
        )
        return
    if not build.compute_capabilities:
        if build.cuda_version is None:
            yield Problem(
                where=f"TensorFlow {build.version}",
                expected="a build with CUDA",
                received="a build for CPUs only",
                why="it ignores the GPUs without a word",
                fix=f'pip uninstall -y tensorflow-cpu && pip install "tensorflow[and-cuda]=={_release(build)}"',
            )
        return
    for gpu in gpus:
        if not (_has_binary(build, gpu.compute_capability) or _has_ptx(build, gpu.compute_capability)):
            yield Problem(
                where=f"TensorFlow {build.version}",
                expected=f"code for {_label(gpu)}",
                received=f"code for {', '.join(build.compute_capabilities)}",
                why="a binary runs on its own major architecture only, and PTX on the same or later ones only",
                fix=_wheel_fix(gpu),
            )


def _release(build: TensorFlowBuild) -> str:
    return re.split(r"[+-]", build.version)[0]


def _wheel_fix(gpu: Gpu) -> str:
    if gpu.compute_capability < (6, 0):
        return 'pip install "tensorflow[and-cuda]==2.15.1", whose oldest target is sm_50'
    return 'pip install "tensorflow[and-cuda]==2.21.*", whose targets are sm_60, sm_70, sm_80, sm_89 and compute_90'


def _cudnn(facts: Facts, gpus: list[Gpu]) -> Iterator[Problem]:
    version = facts.libraries.get("cudnn", "")
    wanted = parse_version((facts.tensorflow.cudnn_version if facts.tensorflow else None) or "")[:1]
    found = parse_version(version)
    if found and wanted and found[0] != wanted[0]:
        yield Problem(
            where="cuDNN",
            expected=f"cuDNN {wanted[0]}, with which this TensorFlow was built",
            received=f"cuDNN {version}",
            why="TensorFlow opens the library by its major version; without it, it leaves the GPUs alone",
            fix=_CUDNN_FIX.get(wanted[0], f"install cuDNN {wanted[0]}"),
        )
        return
    for gpu in filter(_is_volta_or_older, gpus):
        if found >= _CUDNN_WITHOUT_VOLTA:
            yield Problem(
                where="cuDNN",
                expected=f"cuDNN below 9.11 on {_label(gpu)}",
                received=f"cuDNN {version}",
                why="cuDNN 9.11 removed compute capabilities below 7.5; TensorFlow's and-cuda extra takes the newest 9",
                fix=_CUDNN_FIX[9],
            )


def _cuda(facts: Facts, gpus: list[Gpu]) -> Iterator[Problem]:
    build = facts.tensorflow
    versions = {name: version for name, version in facts.libraries.items() if name in ("cuda_runtime", "cublas")}
    if build is not None and build.cuda_version:
        versions["CUDA of the TensorFlow build"] = build.cuda_version
    bad = [
        f"{name} {version}"
        for name, version in versions.items()
        if parse_version(version)[:1] >= (_CUDA_WITHOUT_VOLTA,)
    ]
    # These two land in the folder in which TensorFlow looks for those of CUDA 12.
    shared = ("nvidia-cudnn-cu13", "nvidia-nccl-cu13")
    bad += [f"{name} {facts.packages[name]}" for name in shared if name in facts.packages]
    for gpu in filter(_is_volta_or_older, gpus):
        if bad:
            yield Problem(
                where="CUDA",
                expected=f"CUDA 12 libraries on {_label(gpu)}",
                received=", ".join(bad),
                why="CUDA 13 has neither libraries nor a compiler for Volta and older",
                fix='pip uninstall -y nvidia-cudnn-cu13 nvidia-nccl-cu13 && pip install "tensorflow[and-cuda]==2.21.*" '
                '"nvidia-cudnn-cu12>=9.3,<9.11"',
            )


def _driver(facts: Facts, gpus: list[Gpu]) -> Iterator[Problem]:
    branch = parse_version(facts.driver or "")[:1]
    for gpu in filter(_is_volta_or_older, gpus):
        if branch > (_LAST_DRIVER_BRANCH,):
            yield Problem(
                where="NVIDIA driver",
                expected=f"driver branch R{_LAST_DRIVER_BRANCH} or older on {_label(gpu)}",
                received=f"driver {facts.driver}",
                why=f"R{_LAST_DRIVER_BRANCH} is the last branch with Volta; it has long-term support until June 2028",
                fix=f"install a driver of branch R{_LAST_DRIVER_BRANCH}, such as the package nvidia-driver-580-server",
            )
    build = facts.tensorflow
    wanted = parse_version((build.cuda_version if build else None) or "")[:1]
    served = parse_version(facts.cuda_driver or "")[:1]
    if wanted and served and served < wanted:
        yield Problem(
            where="NVIDIA driver",
            expected=f"a driver for CUDA {wanted[0]}, with which this TensorFlow was built",
            received=f"driver {facts.driver or 'of unknown version'}, which serves CUDA {facts.cuda_driver}",
            why="a driver serves programs of its own and older major versions of CUDA",
            fix=f"install a driver of branch R{_LAST_DRIVER_BRANCH}",
        )


_CHECKS: tuple[Callable[[Facts, list[Gpu]], Iterator[Problem]], ...] = (_architecture, _cudnn, _cuda, _driver)
