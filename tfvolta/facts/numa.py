"""NUMA nodes: which logical processors are near to which memory and which GPUs.

Source: Linux kernel documentation, "Sysfs files of NUMA nodes" (node*/cpulist), "CPU topology"
(topology/thread_siblings_list) and "ABI: sysfs-bus-pci" (numa_node, -1 where the firmware does not say).
"""

from __future__ import annotations

import pathlib
import re
from typing import Iterable, Optional, Sequence

from tfvolta.facts.schema import Gpu, NumaNode

_NODES = "sys/devices/system/node"
_CPUS = "sys/devices/system/cpu"
_PCI = "sys/bus/pci/devices"


def parse_cpus(text: str) -> tuple[int, ...]:
    """Members of a list such as ``0-3,8``, in ascending order; empty where it is no such list."""
    members: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            return ()
        members.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(members))


def format_cpus(cpus: Iterable[int]) -> str:
    """A list of processors as Linux writes it, such as ``0-3,8``."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def read_nodes(root: pathlib.Path) -> tuple[NumaNode, ...]:
    """The nodes that have processors, with the threads of each core together; empty where the kernel tells none."""
    nodes = []
    for folder in sorted((root / _NODES).glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        cpus = parse_cpus(_text(folder / "cpulist"))
        if cpus:
            nodes.append(NumaNode(index=int(folder.name[4:]), cores=_cores(root, cpus), cpus=format_cpus(cpus)))
    return tuple(nodes)


def _cores(root: pathlib.Path, cpus: Sequence[int]) -> tuple[str, ...]:
    """Processors grouped by core, in the order of each core's first thread."""
    cores: dict[int, tuple[int, ...]] = {}
    for cpu in cpus:
        threads = parse_cpus(_text(root / _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"))
        own = tuple(thread for thread in threads if thread in cpus) or (cpu,)
        cores.setdefault(own[0], own)
    return tuple(format_cpus(cores[first]) for first in sorted(cores))


def with_nodes(root: pathlib.Path, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs with the node that each is attached to, where the kernel knows it."""
    return tuple(gpu.model_copy(update={"numa_node": _node_of(root, gpu.pci_bus_id)}) for gpu in gpus)


def _node_of(root: pathlib.Path, bus_id: Optional[str]) -> Optional[int]:
    """NVML writes a domain of eight digits where Linux writes four."""
    match = re.fullmatch(r"(?:0000)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", (bus_id or "").lower())
    text = _text(root / _PCI / match[1] / "numa_node").strip() if match else ""
    return int(text) if text.isdigit() else None


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
