"""What joins the GPUs of one training: the links inside a machine, those between machines, and the memory."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from tfvolta.cost.link import LINKS, LinkKind

if TYPE_CHECKING:
    from tfvolta.facts.schema import Facts

# Generation of NVLink and number of links of a GPU by compute capability. Source: NVIDIA's P100, V100, A100 and H100
# whitepapers.
_NVLINK: Mapping[tuple[int, int], tuple[str, int]] = {
    (6, 0): ("nvlink1", 4),
    (7, 0): ("nvlink2", 6),
    (8, 0): ("nvlink3", 12),
    (9, 0): ("nvlink4", 18),
}
# Memory bandwidth, GB/s, from NVIDIA's data sheets, by a word in the name of the GPU; the first that fits.
_MEMORY_GB_S = (
    ("H200", 4800.0),
    ("H100", 3350.0),
    ("A100-SXM4-80GB", 2039.0),
    ("A100", 1555.0),
    ("V100", 900.0),
    ("P100", 732.0),
    ("T4", 320.0),
)
# Share of it that a copy reaches: 790 of 900 GB/s on a V100, measured with cudaMemcpy. Source: Rough-n-Ready Roofline:
# NVIDIA V100 edition (paranumal.com, 2018).
_COPY_SHARE = 790.0 / 900.0
# A host bridge splits traffic between GPUs into small packets. Source: NCCL, src/graph/topo.h, INTEL_P2P_OVERHEAD.
_HOST_BRIDGE_SHARE = 5.0 / 6.0
# Subsets of GPUs that are looked at for the best joined one.
_MOST_SUBSETS = 5000


@dataclasses.dataclass(frozen=True)
class Network:
    """What joins machines.

    Attributes:
        link: Kind of the adapters.
        adapters: Number of them in each machine.
    """

    link: LinkKind
    adapters: int = 1

    @property
    def bus_gb_s(self) -> float:
        """Bus bandwidth between machines, all adapters together."""
        return self.adapters * self.link.bus_gb_s


# Adapters of recorded machines that are products. Sources: NVIDIA DGX-1 With Tesla V100 System Architecture,
# WP-08437-001 (four EDR adapters); NVIDIA DGX-2 data sheet (eight).
NETWORKS_OF_MACHINES: Mapping[str, Network] = {
    "dgx1": Network(LINKS["ib_edr"], 4),
    "dgx2": Network(LINKS["ib_edr"], 8),
}


@dataclasses.dataclass(frozen=True)
class Fabric:
    """The GPUs of one training and what joins them.

    Attributes:
        gpus: GPUs in each machine.
        machines: Number of machines.
        inside: Slowest kind of link between the GPUs of a machine; None with one GPU.
        inside_gb_s: Bus bandwidth inside a machine, of all links together; infinite with one GPU.
        network: What joins the machines; None with one machine.
        memory_gb_s: What a copy in a GPU's memory reaches, reading and writing added up.
        members: Indices of the GPUs in a machine that reach this bandwidth.
    """

    gpus: int
    machines: int = 1
    inside: Optional[LinkKind] = None
    inside_gb_s: float = float("inf")
    network: Optional[Network] = None
    memory_gb_s: float = float("inf")
    members: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """GPUs altogether."""
        return self.gpus * self.machines

    @property
    def between_gb_s(self) -> float:
        """Bus bandwidth between machines; infinite where there is one."""
        return self.network.bus_gb_s if self.network is not None and self.machines > 1 else float("inf")


def make_fabric(facts: Facts, gpus: int, machines: int = 1, network: Optional[Network] = None) -> Fabric:
    """The fabric of some GPUs of a machine, and of machines like it.

    The best joined GPUs of the machine are taken: two of a DGX-1 are two with a double NVLink, which the order of
    visible devices decides.

    Args:
        facts: The machine.
        gpus: GPUs used in each machine; at most as many as it has.
        machines: Machines like this one.
        network: What joins them.
    """
    members, inside, bandwidth = _best(facts, gpus)
    return Fabric(gpus, machines, inside, bandwidth, network, _memory_gb_s(facts), members)


def _best(facts: Facts, gpus: int) -> tuple[tuple[int, ...], Optional[LinkKind], float]:
    indices = [gpu.index for gpu in facts.gpus]
    if gpus < 2:
        return tuple(indices[:1]), None, float("inf")
    subsets = itertools.islice(itertools.combinations(indices, gpus), _MOST_SUBSETS)
    if len({link.kind for link in facts.links}) <= 1:
        subsets = itertools.islice(subsets, 1)
    found = [(members, *_inside(facts, members)) for members in subsets]
    return max(found, key=lambda item: item[2])


def _inside(facts: Facts, members: Sequence[int]) -> tuple[LinkKind, float]:
    """Slowest kind of link between some GPUs of a machine, and their bus bandwidth.

    Each ring that NCCL makes goes into a GPU through one NVLink and out of it through another, and it makes as many
    rings as there are links: the GPU with the fewest NVLinks to the others sets the bandwidth. Behind an NVSwitch all
    links of a GPU lead to every other GPU, so their sum is cut to the links that it has.
    """
    gpu = facts.gpus[0]
    generation = _NVLINK.get(gpu.compute_capability)
    joined = dict.fromkeys(members, 0)
    slowest = ""
    for link in facts.links:
        if link.a in joined and link.b in joined:
            joined[link.a] += link.nvlinks
            joined[link.b] += link.nvlinks
            slowest = max(slowest, "" if link.nvlinks else link.kind, key=_distance)
    fewest = min(joined.values())
    if generation is not None and fewest and _ring_of_nvlinks(facts, members):
        name, most = generation
        return LINKS[name], min(fewest, most) * LINKS[name].bus_gb_s
    return _pcie(facts, slowest or "SYS")


def _ring_of_nvlinks(facts: Facts, members: Sequence[int]) -> bool:
    from tfvolta.facts.topology import ring_order

    return len(members) < 2 or ring_order(facts, members).nvlinks > 0


def _distance(kind: str) -> int:
    return ("", "PIX", "PXB", "PHB", "NODE", "SYS").index(kind)


def _pcie(facts: Facts, kind: str) -> tuple[LinkKind, float]:
    """The way over PCIe, as far as ``kind`` says that it goes."""
    gpu = facts.gpus[0]
    generation = min(max(gpu.pcie_generation or 3, 3), 5)
    slot = LINKS[f"pcie{generation}"]
    bandwidth = slot.bus_gb_s * min(gpu.pcie_width or 16, 16) / 16
    if kind == "SYS":
        between = LINKS["qpi" if "E5-" in facts.cpu.model else "upi"]
        return (between, between.bus_gb_s) if between.bus_gb_s < bandwidth else (slot, bandwidth)
    return slot, bandwidth * (_HOST_BRIDGE_SHARE if kind in ("PHB", "NODE") else 1.0)


def _memory_gb_s(facts: Facts) -> float:
    name = facts.gpus[0].name if facts.gpus else ""
    peak = next((peak for word, peak in _MEMORY_GB_S if word in name), None)
    return float("inf") if peak is None else peak * _COPY_SHARE
