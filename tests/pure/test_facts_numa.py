"""NUMA nodes, cores and the nodes of GPUs, read from fake roots."""

from __future__ import annotations

import pathlib

import pytest

from tests.pure.facts_machine import machine, write
from tfvolta.facts.description import describe
from tfvolta.facts.numa import format_cpus, parse_cpus, read_nodes, with_nodes
from tfvolta.facts.probe import probe
from tfvolta.facts.record import load
from tfvolta.facts.schema import Gpu


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("\n", ()), ("0-x", ()), ("8,0-1", (0, 1, 8))],
)
def test_lists_of_processors(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


def test_lists_are_written_as_linux_writes_them() -> None:
    assert format_cpus((8, 0, 1, 2)) == "0-2,8" and format_cpus(()) == "" and format_cpus(range(4)) == "0-3"


def two_sockets(root: pathlib.Path) -> pathlib.Path:
    for node, cpus in ((0, "0-1,4-5"), (1, "2-3,6-7")):
        write(root, f"sys/devices/system/node/node{node}/cpulist", cpus + "\n")
    write(root, "sys/devices/system/node/node2/cpulist", "\n")  # memory without processors
    for cpu in range(8):
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n")
    write(root, "sys/bus/pci/devices/0000:86:00.0/numa_node", "1\n")
    write(root, "sys/bus/pci/devices/0000:06:00.0/numa_node", "-1\n")
    return root


def test_threads_of_a_core_stay_together(tmp_path: pathlib.Path) -> None:
    nodes = read_nodes(two_sockets(tmp_path))
    assert [(node.index, node.cpus, node.cores) for node in nodes] == [
        (0, "0-1,4-5", ("0,4", "1,5")),
        (1, "2-3,6-7", ("2,6", "3,7")),
    ]


def test_a_gpu_knows_its_node_where_the_firmware_says_so(tmp_path: pathlib.Path) -> None:
    gpus = [
        Gpu(index=index, name="V100", memory_mb=16160, compute_capability=(7, 0), pci_bus_id=bus)
        for index, bus in enumerate(("00000000:86:00.0", "00000000:06:00.0", "00000000:8A:00.0", None, "odd"))
    ]
    assert [gpu.numa_node for gpu in with_nodes(two_sockets(tmp_path), gpus)] == [1, None, None, None, None]


def test_a_machine_that_tells_no_nodes_has_none(tmp_path: pathlib.Path) -> None:
    assert probe({"PATH": ""}, str(machine(tmp_path)), path=[]).numa_nodes == ()


@pytest.mark.parametrize(("name", "first", "gpus"), [("dgx1", "0-19,40-59", 4), ("dgx2", "0-23,48-71", 8)])
def test_recorded_machines_have_two_sockets(name: str, first: str, gpus: int) -> None:
    facts = load(name)
    assert facts.numa_nodes[0].cpus == first
    for node in facts.numa_nodes:
        assert format_cpus(parse_cpus(",".join(node.cores))) == node.cpus
    assert [gpu.numa_node for gpu in facts.gpus] == [0] * gpus + [1] * gpus
    assert len({cpu for node in facts.numa_nodes for cpu in parse_cpus(node.cpus)}) == facts.cpu.cores
    assert any(f"node 0: processors {first}; GPU 0, 1" in line for line in describe(facts))
