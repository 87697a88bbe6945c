"""How long an all-reduce takes, by the model of latency and bandwidth.

A message of S bytes over one link takes alpha + S / B. A ring sends 2 (n - 1) pieces of S / n one after another. A
double binary tree sends each byte up one of two trees and down again, so that its latency grows with the logarithm of
the machines; inside a machine NCCL's tree is a chain. A hierarchical all-reduce reduces and scatters inside each
machine, reduces each part between machines, and gathers inside each machine.

Sources: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH (2005); Patarasuk and
Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations (2009); Sanders, Speck, Traeff, Two-Tree
Algorithms for Full Bandwidth Broadcast, Reduction and Scan (2009); Jeaugey, Massively Scale Your Deep Learning Training
with NCCL 2.4 (2019).
"""

from __future__ import annotations

import math
from typing import Callable, Mapping, Optional

from tfvolta.cost.fabric import Fabric
from tfvolta.cost.link import PROTOCOLS, Algorithm, LinkKind, Protocol

# Kinds of links over which NCCL uses LL128. Source: src/graph/tuning.cc, pEnable.
_LL128 = ("nvlink",)


def ring_ms(fabric: Fabric, size: float) -> float:
    """Milliseconds of a ring all-reduce through all GPUs.

    Args:
        fabric: GPUs and links.
        size: Bytes on each GPU.
    """
    ranks, machines = fabric.ranks, fabric.machines
    if ranks < 2 or size <= 0:
        return 0.0
    between = 2 * (machines - 1)
    inside = 2 * (ranks - 1) - between
    bandwidth = min(fabric.inside_gb_s, fabric.between_gb_s)
    return _fastest(fabric, "ring", (inside, between), 2.0 * (ranks - 1) / ranks * size / bandwidth)


def tree_ms(fabric: Fabric, size: float) -> float:
    """Milliseconds of an all-reduce over a double binary tree of machines, and a chain inside each."""
    if fabric.ranks < 2 or size <= 0:
        return 0.0
    inside = 2 * (fabric.gpus - 1)
    between = 2 * math.ceil(math.log2(fabric.machines))
    bandwidth = min(fabric.inside_gb_s, fabric.between_gb_s)
    return _fastest(fabric, "tree", (inside, between), 2.0 * size / bandwidth)


def hierarchical_ms(fabric: Fabric, size: float) -> float:
    """Milliseconds of reduce-scatter inside, ring between, and all-gather inside; of a ring where one is missing."""
    if fabric.machines < 2 or fabric.gpus < 2 or size <= 0:
        return ring_ms(fabric, size)
    gpus, machines = fabric.gpus, fabric.machines
    # Scatter and gather are half a ring all-reduce each, and the parts of all GPUs share the adapters.
    inside = _fastest(fabric, "ring", (gpus - 1, 0), (gpus - 1) / gpus * size / fabric.inside_gb_s)
    between = 2.0 * (machines - 1) / machines * size / fabric.between_gb_s
    return 2 * inside + _fastest(fabric, "ring", (0, 2 * (machines - 1)), between)


ALGORITHMS: Mapping[str, Callable[[Fabric, float], float]] = {
    "ring": ring_ms,
    "tree": tree_ms,
    "hierarchical": hierarchical_ms,
}


def nccl_ms(fabric: Fabric, size: float) -> float:
    """Milliseconds with the algorithm that NCCL takes by itself, the faster of ring and tree."""
    return min(ring_ms(fabric, size), tree_ms(fabric, size))


def all_reduce_ms(fabric: Fabric, size: float, algorithm: str = "auto") -> float:
    """Milliseconds with one algorithm; ``auto`` is NCCL's own choice."""
    return nccl_ms(fabric, size) if algorithm == "auto" else ALGORITHMS[algorithm](fabric, size)


def crossover_bytes(fabric: Fabric) -> float:
    """Bytes above which a ring is faster than a tree; 0 where it always is, infinite where it never is."""
    low, high = 1.0, 1e12
    if ring_ms(fabric, low) <= tree_ms(fabric, low):
        return 0.0
    if ring_ms(fabric, high) > tree_ms(fabric, high):
        return float("inf")
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if ring_ms(fabric, middle) > tree_ms(fabric, middle) else (low, middle)
    return high


def _fastest(fabric: Fabric, algorithm: Algorithm, hops: tuple[int, int], transfer: float) -> float:
    """The fastest of NCCL's protocols.

    Args:
        fabric: Kinds of links.
        algorithm: Whose latencies and shares hold.
        hops: Hops one after another inside machines and between them.
        transfer: Bytes over GB/s at the full bus bandwidth, in nanoseconds.
    """
    inside, between = hops
    times = []
    for protocol in PROTOCOLS:
        if protocol.name == "LL128" and inside and fabric.inside is not None and fabric.inside.reach not in _LL128:
            continue
        latency = protocol.start_us[algorithm]
        latency += inside * _hop_us(protocol, algorithm, fabric.inside)
        latency += between * _hop_us(protocol, algorithm, fabric.network.link if fabric.network else None)
        times.append(latency * 1e-3 + transfer * 1e-6 / protocol.share[algorithm])
    return min(times)


def _hop_us(protocol: Protocol, algorithm: Algorithm, link: Optional[LinkKind]) -> float:
    return 0.0 if link is None else protocol.hop_us[link.reach][algorithm] + link.extra_us
