"""Versions of the CUDA libraries that TensorFlow would load: cuDNN, NCCL, the CUDA runtime, cuBLAS.

TensorFlow opens them by soname while it starts. Its shared objects carry a RUNPATH to the pip packages' folders, and
the dynamic linker searches LD_LIBRARY_PATH before a RUNPATH, then the linker's own folders; see ld.so(8). So an old
cuDNN in LD_LIBRARY_PATH silently wins over the one that pip installed. NVIDIA's containers name the versions in
the environment, which serves where a file's name does not tell.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Iterator, Mapping, NamedTuple, Optional

from tfvolta.facts.schema import TensorFlowBuild

_SONAMES = {"cudnn": "libcudnn", "nccl": "libnccl", "cuda_runtime": "libcudart", "cublas": "libcublas"}
_PACKAGES = {
    "cudnn": "nvidia-cudnn",
    "nccl": "nvidia-nccl",
    "cuda_runtime": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
}
# NVIDIA's framework containers first, then the nvidia/cuda images.
_VARIABLES = {
    "cudnn": ("CUDNN_VERSION", "NV_CUDNN_VERSION"),
    "nccl": ("NCCL_VERSION", "NV_LIBNCCL_PACKAGE_VERSION"),
    "cuda_runtime": ("CUDA_VERSION", "NV_CUDA_CUDART_VERSION"),
    "cublas": ("CUBLAS_VERSION", "NV_LIBCUBLAS_VERSION"),
}
_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
)


class Finding(NamedTuple):
    """A version and where it was read."""

    version: str
    place: str


def read_libraries(
    environ: Mapping[str, str],
    root: pathlib.Path,
    packages: Mapping[str, str],
    build: Optional[TensorFlowBuild],
    notes: list[str],
) -> dict[str, str]:
    """Versions by library: cudnn, nccl, cuda_runtime, cublas; a library that is found nowhere is left out.

    Args:
        environ: The process environment.
        root: ``/``, or a folder laid out like it.
        packages: Installed Python packages, from ``read_packages``.
        build: The installed TensorFlow; it opens only the major versions that it was built with.
        notes: Receives a sentence where two copies differ, because the one that wins is easily the wrong one, and
            where there are only copies that TensorFlow does not open.
    """
    versions = {}
    for library in _SONAMES:
        all_findings = list(_findings(library, environ, root, packages))
        major = _wanted_major(library, build)
        findings = [found for found in all_findings if major is None or parse_version(found.version)[:1] == (major,)]
        if all_findings and not findings:
            found = all_findings[0]
            notes.append(f"{library}: {found.place} has {found.version}; this TensorFlow opens version {major} only")
        if not findings:
            continue
        first = findings[0]
        versions[library] = first.version
        other = next((found for found in findings[1:] if not _agree(first.version, found.version)), None)
        if other is not None:
            notes.append(
                f"{library}: {first.place} has {first.version} and {other.place} has {other.version}; "
                f"{first.version} is loaded"
            )
    return versions


def _wanted_major(library: str, build: Optional[TensorFlowBuild]) -> Optional[int]:
    if build is None or library == "nccl":
        return None
    built_with = build.cudnn_version if library == "cudnn" else build.cuda_version
    return next(iter(parse_version(built_with or "")), None)


def parse_version(text: str) -> tuple[int, ...]:
    """Leading numbers of a version: ``9.10.2.21`` gives (9, 10, 2, 21), ``2.18.5-1+cuda12.2`` gives (2, 18, 5)."""
    match = re.match(r"\D*?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def _agree(first: str, second: str) -> bool:
    """Whether two versions are the same as far as both go: a file says 12, its package 12.5.82."""
    return all(a == b for a, b in zip(parse_version(first), parse_version(second)))


def _findings(
    library: str,
    environ: Mapping[str, str],
    root: pathlib.Path,
    packages: Mapping[str, str],
) -> Iterator[Finding]:
    """What each place has, in the order in which the dynamic linker looks."""
    searched = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    soname = _SONAMES[library]
    named = next(((name, environ[name]) for name in _VARIABLES[library] if environ.get(name)), None)
    for folder in searched:
        for found in _in_folder(root / folder.lstrip("/"), soname):
            yield Finding(_refined(found, named), f"LD_LIBRARY_PATH ({folder})")
    for name, version in packages.items():
        if re.fullmatch(re.escape(_PACKAGES[library]) + r"(-cu\d+)?", name):
            yield Finding(version, f"the package {name}")
    for path in _linker_folders(root):
        for found in _in_folder(path, soname):
            yield Finding(_refined(found, named), f"/{path.relative_to(root)}")
    if named is not None:
        yield Finding(named[1], f"the environment ({named[0]})")


def _refined(found: str, named: Optional[tuple[str, str]]) -> str:
    """The environment's longer version where a file's name gives only the beginning of the same one."""
    if named is None or len(parse_version(named[1])) <= len(parse_version(found)):
        return found
    return named[1] if _agree(found, named[1]) else found


def _in_folder(folder: pathlib.Path, soname: str) -> list[str]:
    """Versions in a library's file names, the newest of each major version: libcudnn.so.9.10.2 gives 9.10.2."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(f"{soname}.so.")]
    except OSError:
        return []
    newest: dict[int, str] = {}
    for text in sorted((name[len(soname) + 4 :] for name in names), key=parse_version):
        if text[:1].isdigit():
            newest[parse_version(text)[0]] = text
    versions = [_packaged(folder / f"{soname}.so.{text}") or text for text in newest.values()]
    return sorted(versions, key=parse_version, reverse=True)


def _packaged(file: pathlib.Path) -> Optional[str]:
    """Version of the pip package that a library lies in, if it does: such files are named libcudnn.so.9 and no more."""
    try:
        real = file.resolve()
    except OSError:
        return None
    if real.parent.name != "lib" or real.parent.parent.parent.name != "nvidia":
        return None
    site, name = real.parents[3], real.parent.parent.name
    for metadata in site.glob(f"nvidia_{name}_cu*-*.dist-info"):
        return metadata.name[: -len(".dist-info")].rpartition("-")[2]
    return None


def _linker_folders(root: pathlib.Path) -> Iterator[pathlib.Path]:
    seen = set()
    for folder in (*_configured_folders(root), *_FOLDERS):
        path = root / folder.lstrip("/")
        if path not in seen and path.is_dir():
            seen.add(path)
            yield path


def _configured_folders(root: pathlib.Path) -> Iterator[str]:
    """Folders that ld.so.conf and the files beside it name."""
    files = [root / "etc/ld.so.conf", *sorted((root / "etc/ld.so.conf.d").glob("*.conf"))]
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        yield from (line.strip() for line in lines if line.strip().startswith("/"))
