"""Fabrics for tests of the cost model: recorded machines, and ones without any limit."""

from __future__ import annotations

from typing import Any

from tfvolta.cost.fabric import NETWORKS_OF_MACHINES, Fabric, Network, make_fabric
from tfvolta.cost.link import LINKS, LinkKind
from tfvolta.facts.record import load
from tfvolta.facts.schema import Cpu, Facts, Gpu, Link

FREE = LinkKind("free", "a link without limits", "nvlink", float("inf"), float("inf"), "", "")


def dgx1(gpus: int = 8, machines: int = 1) -> Fabric:
    return make_fabric(load("dgx1"), gpus, machines, NETWORKS_OF_MACHINES["dgx1"])


def dgx2(gpus: int = 16, machines: int = 1) -> Fabric:
    return make_fabric(load("dgx2"), gpus, machines, NETWORKS_OF_MACHINES["dgx2"])


def spread_out(machines: int, link: str = "ib_edr", adapters: int = 1) -> Fabric:
    """One GPU in each machine."""
    return make_fabric(load("dgx1"), 1, machines, Network(LINKS[link], adapters))


def facts(count: int, links: list[tuple[int, int, str]], **changes: Any) -> Facts:
    """A machine of V100s with some links."""
    fields = {"name": "Tesla V100", "memory_mb": 16160, "compute_capability": (7, 0), **changes}
    gpus = tuple(Gpu(index=index, **fields) for index in range(count))
    joined = tuple(Link(a=a, b=b, kind=kind) for a, b, kind in links)
    return Facts(gpus=gpus, links=joined, cpu=Cpu(model="Intel Xeon E5-2698 v4", cores=1, memory_mb=1))
