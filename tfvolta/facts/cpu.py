"""Processors and memory, and what the control group and the affinity mask leave of them.

Source: Linux kernel documentation, "Control Group v2" (cpu.max, memory.max) and "CFS Bandwidth Control"
(cpu.cfs_quota_us, cpu.cfs_period_us) and "Memory Resource Controller" (memory.limit_in_bytes) for version 1.
"""

from __future__ import annotations

import os
import pathlib
from typing import Iterator, Optional

from tfvolta.facts.schema import Cpu

_MIB = 1024 * 1024
_CPU_MOUNTS = ("cpu,cpuacct", "cpuacct,cpu", "cpu")


def read_cpu(root: pathlib.Path, notes: list[str]) -> Cpu:
    """Processors and memory of the machine below ``root``; what cannot be read becomes a note.

    Args:
        root: ``/``, or a folder laid out like it.
        notes: Receives one sentence for each thing that could not be read.
    """
    model, cores = _processors(root, notes)
    memory_mb = _memory_mb(root, notes)
    quota, limit_mb = _cores_limit(root), _memory_limit_mb(root)
    return Cpu(
        model=model,
        cores=cores,
        cores_allowed=_cores_allowed(root),
        cores_limit=quota,
        memory_mb=memory_mb,
        # Version 1 writes "no limit" as the largest multiple of a page, so anything above the memory is none.
        memory_limit_mb=limit_mb if limit_mb is not None and limit_mb < memory_mb else None,
    )


def _text(path: pathlib.Path) -> Optional[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _fields(text: Optional[str]) -> Iterator[tuple[str, str]]:
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()


def _processors(root: pathlib.Path, notes: list[str]) -> tuple[str, int]:
    fields = list(_fields(_text(root / "proc/cpuinfo")))
    cores = sum(name == "processor" for name, _ in fields)
    model = next((value for name, value in fields if name in ("model name", "Model", "cpu")), "")
    if cores:
        return model, cores
    notes.append("processors: /proc/cpuinfo cannot be read; the count is Python's")
    return model, os.cpu_count() or 1


def _memory_mb(root: pathlib.Path, notes: list[str]) -> int:
    for name, value in _fields(_text(root / "proc/meminfo")):
        if name == "MemTotal" and value.split()[:1] and value.split()[0].isdigit():
            return max(1, int(value.split()[0]) // 1024)
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    except (ValueError, OSError):
        total = 1
    notes.append(f"memory: /proc/meminfo cannot be read; {total} MiB is Python's figure")
    return max(1, total)


def _cores_allowed(root: pathlib.Path) -> Optional[int]:
    for name, value in _fields(_text(root / "proc/self/status")):
        if name == "Cpus_allowed_list":
            return _count(value)
    return None


def _count(ranges: str) -> Optional[int]:
    """Members of a list such as ``0-3,8``."""
    total = 0
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            return None
        total += int(last) - int(first) + 1 if dash else 1
    return total or None


def _groups(root: pathlib.Path, mount: pathlib.Path, controller: str) -> Iterator[pathlib.Path]:
    """This process's control group and all above it, as folders that exist; a limit of any of them binds.

    In a container the path in /proc/self/cgroup may be the host's; then only the mount itself is there.
    """
    own = "/"
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if (controller == "" and controllers == "") or controller in controllers.split(","):
            own = path
    folder = mount / own.strip("/")
    while True:
        if folder.is_dir():
            yield folder
        if folder == mount or mount not in folder.parents:
            return
        folder = folder.parent


def _least(values: Iterator[Optional[float]]) -> Optional[float]:
    return min((value for value in values if value is not None), default=None)


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _ratio(quota: Optional[float], period: Optional[float]) -> Optional[float]:
    if quota is None or not period or quota <= 0:
        return None
    return round(quota / period, 3)


def _cores_limit(root: pathlib.Path) -> Optional[float]:
    mount = root / "sys/fs/cgroup"
    unified: list[Optional[float]] = []
    for folder in _groups(root, mount, ""):
        words = (_text(folder / "cpu.max") or "").split()
        if len(words) == 2:
            unified.append(_ratio(_number(words[0]), _number(words[1])))
    separate = [
        _ratio(_number(_text(folder / "cpu.cfs_quota_us")), _number(_text(folder / "cpu.cfs_period_us")))
        for name in _CPU_MOUNTS
        for folder in _groups(root, mount / name, "cpu")
    ]
    return _least(iter(unified + separate))


def _memory_limit_mb(root: pathlib.Path) -> Optional[int]:
    mount = root / "sys/fs/cgroup"
    unified = [_number(_text(folder / "memory.max")) for folder in _groups(root, mount, "")]
    separate = [
        _number(_text(folder / "memory.limit_in_bytes")) for folder in _groups(root, mount / "memory", "memory")
    ]
    least = _least(iter(unified + separate))
    return None if least is None else max(1, int(least) // _MIB)
