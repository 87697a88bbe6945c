"""Ring, tree or hierarchical: the choice, its sentence, and the plan that shows it."""

from __future__ import annotations

import random

import pytest

from tests.pure.cost_fabrics import facts
from tests.pure.machines import machine
from tfvolta.config.schema import Config
from tfvolta.cost.all_reduce import ALGORITHMS, crossover_bytes
from tfvolta.cost.choice import amount, choose
from tfvolta.cost.fabric import NETWORKS_OF_MACHINES, Network, make_fabric
from tfvolta.cost.link import LINKS
from tfvolta.strategy import registry

DGX1, DGX2 = machine("dgx1"), machine("dgx2")
EDR = NETWORKS_OF_MACHINES["dgx1"]


def test_one_gpu_needs_none() -> None:
    assert choose(DGX1, 1, 1e6, gpus=1).algorithm == "none"
    assert choose(machine("v100_16gb"), 1, None).algorithm == "none"


def test_one_machine_takes_a_ring_and_says_in_which_order() -> None:
    choice = choose(DGX1, 1, 102e6)
    assert choice.algorithm == "ring" and set(choice.milliseconds) == {"ring", "tree"}
    assert "NVLink 2" in choice.reason and "120 GB/s" in choice.reason
    assert "GPU 0 3 2 1 5 6 7 4 every hop of the ring has 2 NVLinks or more" in choice.reason


def test_some_gpus_of_a_machine_are_those_joined_best() -> None:
    assert "devices.visible: [0, 3]" in choose(DGX1, 1, None, gpus=2).reason
    assert "devices.visible" not in choose(DGX2, 1, None, gpus=2).reason


def test_over_pcie_the_order_names_the_farthest_hop() -> None:
    links = [(0, 1, "PIX"), (0, 2, "SYS"), (1, 2, "SYS"), (2, 3, "PIX"), (0, 3, "SYS"), (1, 3, "SYS")]
    reason = choose(facts(4, links), 1, None).reason
    assert "QPI" in reason and "is SYS or nearer" in reason


@pytest.mark.parametrize(("machines", "size", "algorithm"), [(32, 1e3, "tree"), (32, 1e6, "tree"), (4, 2e9, "ring")])
def test_machines_and_size_decide(machines: int, size: float, algorithm: str) -> None:
    choice = choose(DGX1, machines, size, network=EDR)
    assert choice.algorithm == algorithm
    assert choice.reason.startswith(algorithm.capitalize()) and "InfiniBand EDR" in choice.reason


def test_the_choice_is_the_fastest() -> None:
    chance = random.Random(5)
    for _ in range(200):
        machines, size = chance.choice([1, 2, 4, 16, 64]), 10 ** chance.uniform(2, 9.5)
        network = Network(LINKS[chance.choice(["ib_edr", "ib_hdr", "ethernet_25"])], chance.randrange(1, 9))
        choice = choose(DGX2, machines, size, network=network)
        assert choice.milliseconds[choice.algorithm] == min(choice.milliseconds.values())
        fabric = make_fabric(DGX2, 16, machines, network)
        for name, time in choice.milliseconds.items():
            assert time == ALGORITHMS[name](fabric, size)


def test_hierarchical_says_who_has_it() -> None:
    choice = choose(DGX1, 2, 102e6, network=EDR)
    assert choice.algorithm == "hierarchical" and "communication.hierarchical: true" in choice.reason


def test_without_a_size_the_crossover_is_named() -> None:
    choice = choose(DGX1, 16, None, network=EDR)
    limit = crossover_bytes(make_fabric(DGX1, 8, 16, EDR))
    assert choice.algorithm == "auto" and f"Trees up to about {amount(limit)}" in choice.reason


def test_what_is_not_known_is_said() -> None:
    assert "not known" in choose(DGX1, 4, 1e6).reason
    assert "not known" in choose(facts(4, []), 1, 1e6).reason


@pytest.mark.parametrize(("size", "text"), [(1234, "1.23 kB"), (5e6, "5 MB"), (1.3449e9, "1,345 MB")])
def test_amounts_in_words(size: float, text: str) -> None:
    assert amount(size) == text


def _plan(name: str, **sections: object) -> str:
    config = Config.model_validate({"strategy": {"kind": "mirrored"}, **sections})
    return registry.forecast_communication(config, machine(name)).message


def test_the_plan_says_how_nccl_uses_the_links() -> None:
    assert "GPU 0 3 2 1 5 6 7 4" in _plan("dgx1")
    assert "GPU 0 3 2 1 5 6 7 4" in _plan("dgx1", communication={"implementation": "nccl", "num_packs": 2})
    assert "NVLink 4 between 2 GPUs" in _plan("h200_x2")
    assert "NVLink" not in _plan("dgx1", communication={"implementation": "hierarchical_copy"})
    assert "NVLink" not in _plan("cpu", strategy={"kind": "mirrored", "logical_cpus": 2})


def test_the_plan_looks_at_visible_gpus_only() -> None:
    text = _plan("dgx1", devices={"visible": [0, 1]})
    assert "20 GB/s" in text and "between 2 GPUs" in text and "devices.visible" not in text
