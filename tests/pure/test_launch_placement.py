"""Which GPU and which processors each worker gets, on recorded machines and small made-up ones."""

from __future__ import annotations

import pytest

from tests.pure.recorded_context import V100, machine
from tfvolta.facts.numa import parse_cpus
from tfvolta.facts.record import load
from tfvolta.facts.schema import NumaNode
from tfvolta.launch.binding import Binding, bind
from tfvolta.launch.gpus import assign, chosen_gpus, too_few
from tfvolta.launch.tasks import tasks_of


def bindings(name: str, workers: int, visible: str = "") -> dict[str, Binding]:
    facts = load(name)
    tasks = tasks_of("multi_worker_mirrored", workers, 0)
    environ = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    gpus = assign(tasks, chosen_gpus(facts, environ), share=False)
    return bind(tasks, gpus, facts, frozenset(range(facts.cpu.cores)))


def test_a_dgx1_gives_each_worker_whole_cores_of_its_gpus_socket() -> None:
    found = bindings("dgx1", 8)
    assert str(found["worker 0"]) == "processors 0-4,40-44 of NUMA node 0"
    assert str(found["worker 3"]) == "processors 15-19,55-59 of NUMA node 0"
    assert str(found["worker 4"]) == "processors 20-24,60-64 of NUMA node 1"
    every = [cpu for binding in found.values() for cpu in binding.cpus]
    assert sorted(every) == list(range(80)), "each processor is given out once"


def test_workers_on_one_socket_share_that_socket_alone() -> None:
    found = bindings("dgx1", 3, visible="5,1,6")
    assert [binding.node for binding in found.values()] == [1, 0, 1]
    assert found["worker 1"].cpus == parse_cpus("0-19,40-59")
    assert set(found["worker 0"].cpus) | set(found["worker 2"].cpus) == set(parse_cpus("20-39,60-79"))
    assert not set(found["worker 0"].cpus) & set(found["worker 2"].cpus)


def test_a_dgx2_has_three_cores_for_each_of_sixteen() -> None:
    found = bindings("dgx2", 16)
    assert {len(binding.cpus) for binding in found.values()} == {6}
    assert str(found["worker 15"]) == "processors 45-47,93-95 of NUMA node 1"


def test_one_node_is_divided_where_there_are_two_processors_each() -> None:
    tasks = tasks_of("multi_worker_mirrored", 2, 0)
    nothing: dict[str, tuple[int, ...]] = {}
    four = bind(tasks, nothing, machine(), frozenset(range(4)))
    assert [binding.cpus for binding in four.values()] == [(0, 1), (2, 3)]
    assert str(four["worker 1"]) == "processors 2-3"
    three = bind(tasks, nothing, machine(), frozenset(range(3)))
    assert [str(binding) for binding in three.values()] == ["all processors"] * 2
    alone = bind(tasks[:1], nothing, machine(), frozenset(range(64)))
    assert alone["worker 0"].cpus == ()


def test_a_control_group_that_leaves_one_socket_is_one_node() -> None:
    facts = load("dgx1")
    tasks = tasks_of("multi_worker_mirrored", 8, 0)
    gpus = assign(tasks, chosen_gpus(facts, {}), share=False)
    found = bind(tasks, gpus, facts, frozenset(range(16)))
    assert [binding.cpus for binding in found.values()] == [(2 * n, 2 * n + 1) for n in range(8)]
    assert {binding.node for binding in found.values()} == {None}


def test_a_socket_with_too_few_processors_is_shared() -> None:
    nodes = (NumaNode(index=0, cores=("0", "1"), cpus="0-1"), NumaNode(index=1, cores=("2", "3"), cpus="2-3"))
    tasks = tasks_of("multi_worker_mirrored", 4, 0)
    found = bind(tasks, {}, machine(numa_nodes=nodes), frozenset(range(4)))
    assert [str(binding) for binding in found.values()] == [
        "processors 0-1 of NUMA node 0",
        "processors 0-1 of NUMA node 0",
        "processors 2-3 of NUMA node 1",
        "processors 2-3 of NUMA node 1",
    ]


def test_two_threads_of_a_core_stay_with_one_worker_where_that_is_possible() -> None:
    nodes = (NumaNode(index=0, cores=("0,4", "1,5", "2,6", "3,7"), cpus="0-7"),)
    tasks = tasks_of("multi_worker_mirrored", 2, 0)
    found = bind(tasks, {}, machine(numa_nodes=nodes), frozenset(range(8)))
    assert [binding.cpus for binding in found.values()] == [(0, 1, 4, 5), (2, 3, 6, 7)]


def test_only_those_that_compute_get_gpus_and_processors() -> None:
    facts = load("dgx1")
    tasks = tasks_of("parameter_server", 2, 1)
    assert [(task.name, task.rank) for task in tasks] == [("chief 0", 0), ("worker 0", 1), ("worker 1", 2), ("ps 0", 3)]
    assert [task.trains for task in tasks] == [True, False, False, False]
    gpus = assign(tasks, chosen_gpus(facts, {}), share=False)
    assert gpus == {"chief 0": (), "worker 0": (0,), "worker 1": (1,), "ps 0": ()}
    found = bind(tasks, gpus, facts, frozenset(range(80)))
    assert found["chief 0"].cpus == found["ps 0"].cpus == () and len(found["worker 0"].cpus) == 20


@pytest.mark.parametrize(
    ("environ", "visible", "expected"),
    [
        ({}, None, (0, 1, 2, 3)),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, "all", (3, 1)),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, [1], (1,)),
        ({}, [2, 9], (2,)),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, None, ()),
    ],
)
def test_gpus_are_those_that_environment_and_config_leave(
    environ: dict[str, str], visible: object, expected: tuple[int, ...]
) -> None:
    assert chosen_gpus(machine(V100, 4), environ, visible) == expected


def test_more_workers_than_gpus() -> None:
    tasks = tasks_of("multi_worker_mirrored", 3, 0)
    problem = too_few(tasks, (0, 1), share=False)
    assert problem is not None and "--workers 2" in problem.fix and "--share-gpus" in problem.fix
    assert too_few(tasks, (0, 1), share=True) is None and too_few(tasks, (), share=False) is None
    assert assign(tasks, (0, 1), share=True) == {"worker 0": (0,), "worker 1": (1,), "worker 2": (0,)}
