"""Times of an all-reduce: limits, closed forms, monotonicity, crossovers."""

from __future__ import annotations

import dataclasses
import random
from typing import Callable

import pytest

from tests.pure.cost_fabrics import FREE, dgx1, dgx2, spread_out
from tfvolta.cost.all_reduce import (
    ALGORITHMS,
    all_reduce_ms,
    crossover_bytes,
    hierarchical_ms,
    nccl_ms,
    ring_ms,
    tree_ms,
)
from tfvolta.cost.fabric import Fabric, Network

FABRICS = [dgx1(2), dgx1(4), dgx1(8), dgx1(8, 2), dgx1(8, 16), dgx2(16), dgx2(16, 32), spread_out(4), spread_out(64)]
SIZES = [1.0, 1e3, 1e5, 1e6, 1e7, 1e8, 1e9]
Cost = Callable[[Fabric, float], float]
every_algorithm = pytest.mark.parametrize("cost", ALGORITHMS.values(), ids=list(ALGORITHMS))


@every_algorithm
def test_nothing_takes_no_time(cost: Cost) -> None:
    for fabric in FABRICS:
        assert cost(fabric, 0) == 0.0
    assert cost(dgx1(1), 1e9) == 0.0


@every_algorithm
def test_more_bytes_take_longer(cost: Cost) -> None:
    for fabric in FABRICS:
        times = [cost(fabric, size) for size in SIZES]
        assert times == sorted(times) and times[0] > 0 and times[-1] > times[0]


@every_algorithm
def test_more_machines_take_longer(cost: Cost) -> None:
    for size in SIZES:
        times = [cost(dgx1(8, machines), size) for machines in (2, 4, 8, 16, 32, 64)]
        assert times == sorted(times)


def test_more_gpus_behind_a_switch_take_longer() -> None:
    for size in SIZES:
        times = [ring_ms(dgx2(gpus), size) for gpus in range(2, 17)]
        assert times == sorted(times)


@every_algorithm
def test_more_bandwidth_is_never_slower(cost: Cost) -> None:
    chance = random.Random(7)
    for _ in range(200):
        fabric = chance.choice(FABRICS)
        faster = dataclasses.replace(fabric, inside_gb_s=fabric.inside_gb_s * chance.uniform(1, 10))
        if fabric.network is not None:
            network = dataclasses.replace(fabric.network, adapters=fabric.network.adapters + chance.randrange(8))
            faster = dataclasses.replace(faster, network=network)
        size = 10 ** chance.uniform(0, 9)
        assert cost(faster, size) <= cost(fabric, size) * (1 + 1e-12)


def test_a_large_ring_all_reduce_reaches_the_bus_bandwidth() -> None:
    """nccl-tests: bus bandwidth = S / t * 2 (n - 1) / n."""
    for fabric in FABRICS:
        size, ranks = 1e12, fabric.ranks
        reached = size / ring_ms(fabric, size) * 1e-6 * 2 * (ranks - 1) / ranks
        assert reached == pytest.approx(min(fabric.inside_gb_s, fabric.between_gb_s), rel=1e-3)


def test_rings_in_closed_form() -> None:
    # Simple protocol: 8.4 us to start, 14 hops of 3.4 us, 2 * 7 / 8 * 1 GB over 120 GB/s.
    assert ring_ms(dgx1(8), 1e9) == pytest.approx(8.4e-3 + 14 * 3.4e-3 + 1.75e9 / 120e9 * 1e3)
    # Two machines with one GPU each: two hops of 14 us over the network.
    assert ring_ms(spread_out(2), 1e9) == pytest.approx(8.4e-3 + 2 * 14e-3 + 1e9 / 12e9 * 1e3)
    # The smallest message takes the protocol with the least latency, LL.
    assert ring_ms(dgx1(8), 1.0) == pytest.approx(6.6e-3 + 14 * 0.6e-3, rel=1e-3)
    # 30 hops, of which 2 between the machines.
    assert ring_ms(dgx1(8, 2), 1e9) == pytest.approx(8.4e-3 + 28 * 3.4e-3 + 2 * 14e-3 + 2 * 15 / 16 * 1e9 / 48e9 * 1e3)


def test_trees_in_closed_form() -> None:
    # 2 * 7 hops in the chain of each machine, 2 * 5 between 32 machines, 2 S at 0.92 of the bus bandwidth.
    expected = 8.4e-3 + 14 * 4.0e-3 + 10 * 14e-3 + 2e9 / (0.92 * 48e9) * 1e3
    assert tree_ms(dgx1(8, 32), 1e9) == pytest.approx(expected)


def test_hierarchical_in_closed_form() -> None:
    # Reduce-scatter and all-gather of 7 hops inside, a ring of 4 machines between.
    inside = 8.4e-3 + 7 * 3.4e-3 + 7 / 8 * 1e9 / 120e9 * 1e3
    between = 8.4e-3 + 6 * 14e-3 + 2 * 3 / 4 * 1e9 / 48e9 * 1e3
    assert hierarchical_ms(dgx1(8, 4), 1e9) == pytest.approx(2 * inside + between)
    assert hierarchical_ms(dgx1(8), 1e8) == ring_ms(dgx1(8), 1e8)
    assert hierarchical_ms(spread_out(4), 1e8) == ring_ms(spread_out(4), 1e8)


@every_algorithm
def test_without_limits_only_latency_is_left(cost: Cost) -> None:
    free = Fabric(8, 4, FREE, float("inf"), Network(dataclasses.replace(FREE, reach="network")))
    assert cost(free, 1.0) == cost(free, 1e12) > 0


def test_nccl_takes_the_faster_one() -> None:
    for fabric in FABRICS:
        for size in SIZES:
            assert nccl_ms(fabric, size) == min(ring_ms(fabric, size), tree_ms(fabric, size))
            assert all_reduce_ms(fabric, size) == nccl_ms(fabric, size)
            assert all_reduce_ms(fabric, size, "hierarchical") == hierarchical_ms(fabric, size)


def test_trees_win_below_the_crossover_and_rings_above() -> None:
    for fabric in (dgx1(8, 2), dgx1(8, 16), dgx2(16, 32), spread_out(8), spread_out(64)):
        limit = crossover_bytes(fabric)
        assert 0 < limit < float("inf")
        assert tree_ms(fabric, 0.5 * limit) < ring_ms(fabric, 0.5 * limit)
        assert ring_ms(fabric, 2 * limit) < tree_ms(fabric, 2 * limit)


def test_the_crossover_grows_with_the_machines() -> None:
    limits = [crossover_bytes(spread_out(machines)) for machines in (8, 16, 64, 256)]
    assert limits == sorted(limits) and limits[-1] > 10 * limits[0]


def test_on_one_machine_of_two_gpus_a_ring_is_always_faster() -> None:
    assert crossover_bytes(dgx2(2)) == 0.0


def test_ethernet_sockets_cost_latency_too() -> None:
    assert ring_ms(spread_out(8, "ethernet_100"), 1.0) > 5 * ring_ms(spread_out(8, "ib_edr"), 1.0)
