"""Kinds of links: what they could carry, what an all-reduce gets out of them, and how long a message takes at least.

Two bandwidths are kept apart. ``peak_gb_s`` is the line rate of a data sheet, one direction. ``bus_gb_s`` is what an
all-reduce reaches: bytes * 2 (n - 1) / n / time on large messages, which nccl-tests prints as "busbw". Gigabytes are
1e9 bytes, as in nccl-tests.

Sources of the latencies: the tuning table of NCCL (src/graph/tuning.cc, ``hwLatencies`` and ``baseLatencies``,
NCCL 2.28), by kind of link, algorithm and protocol.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, Mapping

Reach = Literal["nvlink", "pcie", "network"]
Algorithm = Literal["ring", "tree"]


@dataclasses.dataclass(frozen=True)
class LinkKind:
    """One kind of link.

    Attributes:
        name: As on the command line.
        title: For a person.
        reach: Which latencies of NCCL's table hold.
        peak_gb_s: Line rate in one direction; of one NVLink, one x16 slot, one network adapter.
        bus_gb_s: Bus bandwidth of an all-reduce through one of them.
        peak_source: Where the line rate is stated.
        bus_source: Where the bus bandwidth was measured or is assumed by NCCL.
        extra_us: Latency of one hop on top of NCCL's table.
    """

    name: str
    title: str
    reach: Reach
    peak_gb_s: float
    bus_gb_s: float
    peak_source: str
    bus_source: str
    extra_us: float = 0.0


_NCCL_NVLINK = "NCCL, src/graph/topo.h, SM{}_NVLINK_BW"
_NCCL_PCIE = "NCCL, src/graph/topo.cc, kvDictPciGen: {} Mbit/s a lane of what a GPU reads and writes"
_PCIE_BASE = "PCI Express Base Specification {}, 16 lanes after line coding"
_ETHERNET = "IEEE 802.3, line rate"
# Of each 1538 bytes on the wire (1500 byte MTU, preamble, gap), 1460 are TCP payload.
_GOODPUT = "line rate * 1460 / 1538, the TCP payload of full Ethernet frames"
# An 8-byte broadcast between two machines over sockets took 42 us (github.com/NVIDIA/nccl-tests issue 82, mean of both
# columns); NCCL's table has 6.6 + 14 us for it.
_SOCKET_US = 21.0

_ALL = (
    LinkKind("nvlink1", "NVLink 1", "nvlink", 20.0, 18.0, "NVIDIA Tesla P100 whitepaper", _NCCL_NVLINK.format(60)),
    LinkKind("nvlink2", "NVLink 2", "nvlink", 25.0, 20.0, "NVIDIA Tesla V100 whitepaper", _NCCL_NVLINK.format(70)),
    LinkKind("nvlink3", "NVLink 3", "nvlink", 25.0, 20.0, "NVIDIA A100 whitepaper", _NCCL_NVLINK.format(80)),
    LinkKind(
        "nvlink4",
        "NVLink 4",
        "nvlink",
        25.0,
        20.6,
        "NVIDIA H100 whitepaper",
        _NCCL_NVLINK.format(90) + "; 18 links: 370 GB/s with a ring (github.com/NVIDIA/nccl-tests issue 212)",
    ),
    LinkKind("pcie3", "PCIe 3.0 x16", "pcie", 15.75, 12.0, _PCIE_BASE.format("3.0"), _NCCL_PCIE.format(6000)),
    LinkKind("pcie4", "PCIe 4.0 x16", "pcie", 31.5, 24.0, _PCIE_BASE.format("4.0"), _NCCL_PCIE.format(12000)),
    LinkKind("pcie5", "PCIe 5.0 x16", "pcie", 63.0, 48.0, _PCIE_BASE.format("5.0"), _NCCL_PCIE.format(24000)),
    LinkKind(
        "qpi",
        "the link between CPU sockets (QPI)",
        "pcie",
        19.2,
        6.0,
        "Intel Xeon E5-2600 v4 data sheet, 9.6 GT/s",
        "NCCL, src/graph/topo.h, BDW_QPI_BW",
    ),
    LinkKind(
        "upi",
        "the link between CPU sockets (UPI)",
        "pcie",
        20.8,
        10.0,
        "Intel Xeon Scalable data sheet, 10.4 GT/s",
        "NCCL, src/graph/topo.h, SKL_QPI_BW",
    ),
    LinkKind(
        "ib_edr",
        "InfiniBand EDR",
        "network",
        12.5,
        12.0,
        "InfiniBand Trade Association, 100 Gbit/s",
        "NCCL's author: 12.2 GB/s an adapter is as good as it gets, 47 to 48 GB/s with the four of a DGX-1 "
        "(github.com/NVIDIA/nccl-tests issue 29, github.com/NVIDIA/nccl issue 307)",
    ),
    LinkKind(
        "ib_hdr",
        "InfiniBand HDR",
        "network",
        25.0,
        24.0,
        "InfiniBand Trade Association, 200 Gbit/s",
        "NCCL's author: 24 GB/s between machines (github.com/NVIDIA/nccl issue 412)",
    ),
    LinkKind("ethernet_10", "10 Gbit Ethernet", "network", 1.25, 1.19, _ETHERNET, _GOODPUT, _SOCKET_US),
    LinkKind("ethernet_25", "25 Gbit Ethernet", "network", 3.125, 2.97, _ETHERNET, _GOODPUT, _SOCKET_US),
    LinkKind(
        "ethernet_100",
        "100 Gbit Ethernet",
        "network",
        12.5,
        7.5,
        _ETHERNET,
        "60 Gbit/s with a ring on a 100 Gbit/s network without InfiniBand (github.com/NVIDIA/nccl-tests issue 22), "
        "60 % of the line rate over sockets (github.com/NVIDIA/nccl issue 209)",
        _SOCKET_US,
    ),
)
LINKS: Mapping[str, LinkKind] = {link.name: link for link in _ALL}
NETWORKS: Mapping[str, LinkKind] = {link.name: link for link in _ALL if link.reach == "network"}


@dataclasses.dataclass(frozen=True)
class Protocol:
    """One way in which NCCL moves data; small messages take one with little latency, large ones the one with bandwidth.

    Attributes:
        name: NCCL's name.
        start_us: Time before anything moves, by algorithm.
        hop_us: Latency of one hop, by reach and algorithm.
        share: Part of the bus bandwidth that it reaches, by algorithm.
    """

    name: str
    start_us: Mapping[Algorithm, float]
    hop_us: Mapping[Reach, Mapping[Algorithm, float]]
    share: Mapping[Algorithm, float]


# Shares: src/graph/tuning.cc, "Various model refinements" (a tree reaches 0.92 of a ring; LL half, and 1 / 3.8).
PROTOCOLS = (
    Protocol(
        "LL",
        {"ring": 6.6, "tree": 6.8},
        {
            "nvlink": {"ring": 0.6, "tree": 0.6},
            "pcie": {"ring": 1.0, "tree": 1.0},
            "network": {"ring": 2.7, "tree": 5.0},
        },
        {"ring": 0.5, "tree": 0.92 / 3.8},
    ),
    Protocol(
        "LL128",
        {"ring": 14.0, "tree": 14.0},
        {
            "nvlink": {"ring": 1.9, "tree": 1.25},
            "pcie": {"ring": 2.5, "tree": 1.9},
            "network": {"ring": 4.0, "tree": 8.5},
        },
        {"ring": 0.92, "tree": 0.92 * 120 / 128},
    ),
    Protocol(
        "Simple",
        {"ring": 8.4, "tree": 8.4},
        {
            "nvlink": {"ring": 3.4, "tree": 4.0},
            "pcie": {"ring": 5.7, "tree": 4.0},
            "network": {"ring": 14.0, "tree": 14.0},
        },
        {"ring": 1.0, "tree": 0.92},
    ),
)
