"""Bus bandwidth of machines: NVLinks direct and behind a switch, PCIe, sockets, networks."""

from __future__ import annotations

import itertools

import pytest

from tests.pure.cost_fabrics import dgx1, dgx2, facts, spread_out
from tfvolta.cost.fabric import make_fabric
from tfvolta.cost.link import LINKS, NETWORKS, PROTOCOLS
from tfvolta.facts.record import load


@pytest.mark.parametrize(("gpus", "bandwidth"), [(2, 40.0), (3, 60.0), (4, 80.0), (8, 120.0)])
def test_gpus_of_a_dgx1_use_the_nvlinks_between_them(gpus: int, bandwidth: float) -> None:
    fabric = dgx1(gpus)
    assert fabric.inside_gb_s == bandwidth and fabric.inside is LINKS["nvlink2"]
    assert len(fabric.members) == gpus


def test_two_gpus_of_a_dgx1_are_two_with_a_double_link() -> None:
    assert dgx1(2).members == (0, 3)


@pytest.mark.parametrize("gpus", [2, 3, 8, 15, 16])
def test_behind_a_switch_every_gpu_has_all_its_links(gpus: int) -> None:
    assert dgx2(gpus).inside_gb_s == 120.0


def test_published_bus_bandwidths_of_newer_machines() -> None:
    """Measured with nccl-tests by others and part of no constant: 232 and 208 GB/s (A100), 370 GB/s (H100, ring)."""
    links = [(a, b, "NV12") for a, b in itertools.combinations(range(8), 2)]
    a100 = facts(8, links, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
    for gpus, measured in ((8, 232.0), (2, 208.0)):
        assert make_fabric(a100, gpus).inside_gb_s == pytest.approx(measured, rel=0.16)
    assert make_fabric(load("h200_x2"), 2).inside_gb_s == pytest.approx(370.0, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "link", "bandwidth"),
    [
        ("PIX", "pcie3", 12.0),
        ("PXB", "pcie3", 12.0),
        ("PHB", "pcie3", 10.0),
        ("NODE", "pcie3", 10.0),
        ("SYS", "qpi", 6.0),
    ],
)
def test_without_nvlink_the_way_over_pcie_counts(kind: str, link: str, bandwidth: float) -> None:
    fabric = make_fabric(facts(2, [(0, 1, kind)], pcie_generation=3, pcie_width=16), 2)
    assert fabric.inside is LINKS[link] and fabric.inside_gb_s == pytest.approx(bandwidth)


def test_the_slowest_hop_over_pcie_counts() -> None:
    mixed = facts(3, [(0, 1, "PIX"), (0, 2, "SYS"), (1, 2, "SYS")])
    assert make_fabric(mixed, 2).inside_gb_s == 12.0  # the two behind one switch
    assert make_fabric(mixed, 3).inside_gb_s == 6.0


def test_generations_and_widths_of_pcie() -> None:
    for generation, width, bandwidth in ((4, 16, 24.0), (5, 16, 48.0), (4, 8, 12.0), (2, 16, 12.0), (7, 16, 48.0)):
        machine = facts(2, [(0, 1, "PIX")], pcie_generation=generation, pcie_width=width)
        assert make_fabric(machine, 2).inside_gb_s == bandwidth


def test_pairs_of_nvlinks_without_a_ring_of_them_go_over_pcie() -> None:
    links = [(0, 1, "NV2"), (2, 3, "NV2"), (0, 2, "PHB"), (0, 3, "PHB"), (1, 2, "PHB"), (1, 3, "PHB")]
    assert make_fabric(facts(4, links), 2).inside_gb_s == 40.0
    assert make_fabric(facts(4, links), 4).inside is LINKS["pcie3"]


def test_networks_add_up_their_adapters() -> None:
    assert dgx1(machines=2).between_gb_s == 48.0 and dgx2(machines=2).between_gb_s == 96.0
    assert spread_out(2, "ib_hdr").between_gb_s == 24.0
    assert dgx1().between_gb_s == float("inf") and dgx1(machines=4).ranks == 32


def test_memory_bandwidth_is_known_by_the_name_of_the_gpu() -> None:
    assert dgx1().memory_gb_s == pytest.approx(790.0)
    assert make_fabric(load("h200_x2"), 2).memory_gb_s > 4000
    assert make_fabric(facts(2, [(0, 1, "NV1")], name="Unheard of"), 2).memory_gb_s == float("inf")


def test_every_link_reaches_less_than_its_line_rate_and_names_its_sources() -> None:
    for link in LINKS.values():
        assert 0 < link.bus_gb_s < link.peak_gb_s, link.name
        assert link.peak_source and link.bus_source
    assert set(NETWORKS) == {"ib_edr", "ib_hdr", "ethernet_10", "ethernet_25", "ethernet_100"}


def test_protocols_trade_latency_for_bandwidth() -> None:
    for algorithm in ("ring", "tree"):
        for reach in ("nvlink", "pcie", "network"):
            hops = [protocol.hop_us[reach][algorithm] for protocol in PROTOCOLS]  # type: ignore[index]
            assert hops == sorted(hops)
        shares = [protocol.share[algorithm] for protocol in PROTOCOLS]  # type: ignore[index]
        assert shares == sorted(shares) and shares[-1] <= 1.0
