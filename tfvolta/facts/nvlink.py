"""How GPUs are joined, as NVML reports it: NVLinks to each other or to a switch, otherwise the way over PCIe.

Source: NVIDIA Management Library API reference, "NvLink Methods" and ``nvmlDeviceGetTopologyCommonAncestor``.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from typing import Any, Sequence

from tfvolta.facts.schema import Link

_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_NOT_TOLD = 255  # NVML_NVLINK_DEVICE_TYPE_UNKNOWN
# nvmlGpuTopologyLevel_t, as nvidia-smi names it.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def read_links(nvml: Any, handles: Sequence[Any], notes: list[str]) -> tuple[Link, ...]:
    """A link for each pair of GPUs; empty with a note where NVML does not tell, for instance in a virtual machine.

    Args:
        nvml: The started module ``pynvml``.
        handles: Device handles by GPU index.
        notes: Receives why nothing could be read.
    """
    try:
        buses = [_bus(nvml.nvmlDeviceGetPciInfo(handle)) for handle in handles]
        ends = [_ends(nvml, handle, buses) for handle in handles]
        links = []
        for a, b in itertools.combinations(range(len(handles)), 2):
            direct = ends[a][buses[b]]
            # Behind NVSwitch every GPU reaches every other with all its links.
            count = direct or min(ends[a]["switch"], ends[b]["switch"])
            if count:
                links.append(Link(a=a, b=b, kind=f"NV{count}"))
                continue
            if ends[a]["unknown"] or ends[b]["unknown"]:
                notes.append("topology: NVML does not say where the NVLinks end; nvidia-smi topo -m serves instead")
                return ()
            level = int(nvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b]))
            links.append(Link(a=a, b=b, kind=_LEVELS[level]))
        return tuple(links)
    except Exception as error:  # NVMLError of many kinds, and functions that older modules lack
        notes.append(f"topology: NVML does not tell the links ({error}); nvidia-smi topo -m serves instead")
        return ()


def _bus(info: Any) -> str:
    """PCI address; older modules return bytes, and domains have four or eight digits."""
    text = info.busId.decode() if isinstance(info.busId, bytes) else info.busId
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _ends(nvml: Any, handle: Any, buses: Sequence[str]) -> collections.Counter[str]:
    """Active NVLinks of a GPU by what they lead to: a PCI address, ``switch`` or ``unknown``."""
    ends: collections.Counter[str] = collections.Counter()
    for number in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, number):
                continue
        except Exception:  # this GPU has fewer links, or none
            break
        ends[_end(nvml, handle, number, buses)] += 1
    return ends


def _end(nvml: Any, handle: Any, number: int, buses: Sequence[str]) -> str:
    kind = _NOT_TOLD
    with contextlib.suppress(Exception):  # not served by this driver; between GPUs the address tells as much
        kind = int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number))
    if kind == _SWITCH:
        return "switch"
    try:
        bus = _bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number))
    except Exception:  # hidden from virtual machines
        return "unknown"
    # A link to a GPU that this container does not see is one end; to something of unknown kind, no answer.
    return bus if bus in buses or kind != _NOT_TOLD else "unknown"
