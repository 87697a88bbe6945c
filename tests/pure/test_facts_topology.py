"""The topology matrix, groups and rings."""

from __future__ import annotations

import pathlib

import pytest

from tfvolta.facts.record import load
from tfvolta.facts.schema import Cpu, Facts, Gpu, Link
from tfvolta.facts.topology import describe, nvlink_groups, parse_topology, ring_order

# Four GPUs in two pairs, with network cards, underlined head and legend, as drivers of the 500 series print it.
MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tSYS\tSYS\tPXB\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tPXB\t32-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV4\t X \tSYS\tPXB\t32-63\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


def machine(count: int, links: list[tuple[int, int, str]]) -> Facts:
    gpus = tuple(Gpu(index=i, name="V100", memory_mb=1, compute_capability=(7, 0)) for i in range(count))
    joined = tuple(Link(a=a, b=b, kind=kind) for a, b, kind in links)
    return Facts(gpus=gpus, links=joined, cpu=Cpu(cores=1, memory_mb=1))


def test_a_matrix_with_cards_and_colours() -> None:
    links, notes = parse_topology(MATRIX)
    assert {(link.a, link.b): link.kind for link in links} == {
        (0, 1): "NV4", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS", (2, 3): "NV4",
    }  # fmt: skip
    assert notes == ()
    text = "        GPU0    GPU1    CPU Affinity\nGPU0     X      SOC     0-9\nGPU1    SOC      X      10-19\n"
    spaces, _ = parse_topology(text)
    assert [(link.a, link.b, link.kind) for link in spaces] == [(0, 1, "SYS")]


def test_odd_matrices_give_notes() -> None:
    assert parse_topology("No devices were found\n").notes[0].startswith("topology: no GPU column")
    assert parse_topology("").links == ()
    uneven = parse_topology("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tSYS\t X \n")
    assert [link.kind for link in uneven.links] == ["NV2"] and "back SYS" in uneven.notes[0]
    unknown = parse_topology("\tGPU0\tGPU1\nGPU0\t X \tFOO\nGPU1\tFOO\t X \n")
    assert unknown.links == () and "'FOO'" in unknown.notes[0]


def test_a_dgx1_has_two_groups_and_a_ring_of_two_links_a_hop() -> None:
    facts = load("dgx1")
    assert nvlink_groups(facts) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    ring = ring_order(facts)
    kinds = {frozenset((link.a, link.b)): link.kind for link in facts.links}
    hops = [kinds[frozenset(pair)] for pair in zip(ring.order, ring.order[1:] + ring.order[:1])]
    assert sorted(ring.order) == list(range(8)) and hops == ["NV2"] * 8 and ring.nvlinks == 2
    assert ring_order(facts, [0, 1, 2, 3]).nvlinks == 1
    assert ring_order(facts, [0, 5]).slowest == "SYS"


def test_every_v100_of_a_dgx1_uses_six_links() -> None:
    facts = load("dgx1")
    for gpu in facts.gpus:
        assert sum(link.nvlinks for link in facts.links if gpu.index in (link.a, link.b)) == 6


def test_a_dgx2_is_one_group() -> None:
    facts = load("dgx2")
    assert nvlink_groups(facts) == [tuple(range(16))] and len(facts.links) == 120
    assert ring_order(facts).nvlinks == 6


def test_without_nvlink_the_ring_crosses_sockets_twice_at_most() -> None:
    links = [(a, b, "PIX" if a // 2 == b // 2 else "SYS") for a in range(4) for b in range(a + 1, 4)]
    facts = machine(4, links)
    assert nvlink_groups(facts) == [(0,), (1,), (2,), (3,)]
    order = ring_order(facts).order
    crossings = sum(a // 2 != b // 2 for a, b in zip(order, order[1:] + order[:1]))
    assert crossings == 2 and ring_order(facts).nvlinks == 0


@pytest.mark.parametrize("count", [0, 1])
def test_few_gpus(count: int) -> None:
    facts = machine(count, [])
    assert ring_order(facts).order == tuple(range(count)) and describe(facts) == []


def test_unknown_links_still_give_an_order() -> None:
    facts = machine(3, [])
    assert ring_order(facts).order == (0, 1, 2) and describe(facts) == ["links    unknown"]


def test_the_description_names_groups_and_ring() -> None:
    text = "\n".join(describe(load("dgx1")))
    assert "GPU 4 5 6 7 each with each" in text and "ring     0 3 2 1 5 6 7 4" in text


def test_recorded_files_are_in_the_package() -> None:
    import tfvolta.facts

    folder = pathlib.Path(tfvolta.facts.__file__).parent / "recorded"
    assert {file.stem for file in folder.glob("*.json")} >= {"v100_16gb", "dgx1", "dgx2", "h200_x2", "cpu"}
