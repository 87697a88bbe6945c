"""Which processors each worker gets: those near to its GPU, divided between the workers that share them.

A worker that reads and prepares data on the other socket sends every batch over the link between them, and workers that
may run on all processors take turns on each other's. TensorFlow sizes its thread pools by the processors that a
process may use, so they follow.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Optional, Sequence

from tfvolta.facts.numa import format_cpus, parse_cpus
from tfvolta.facts.schema import Facts
from tfvolta.launch.tasks import Task

# With fewer processors each, a worker's own threads have nowhere to go.
LEAST_CPUS = 2


@dataclasses.dataclass(frozen=True)
class Binding:
    """Processors of one worker.

    Attributes:
        cpus: Logical processors; empty where it may run on all.
        node: Their NUMA node; None where the machine has one, or tells none.
    """

    cpus: tuple[int, ...] = ()
    node: Optional[int] = None

    def __str__(self) -> str:
        if not self.cpus:
            return "all processors"
        place = "" if self.node is None else f" of NUMA node {self.node}"
        return f"processor{'s' * (len(self.cpus) > 1)} {format_cpus(self.cpus)}{place}"


@dataclasses.dataclass(frozen=True)
class _Node:
    index: Optional[int]
    cores: tuple[tuple[int, ...], ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for core in self.cores for cpu in core))


def bind(
    tasks: Sequence[Task], gpus: Mapping[str, Sequence[int]], facts: Facts, allowed: frozenset[int]
) -> dict[str, Binding]:
    """Processors by the name of a task; those that compute nothing may run on all.

    Args:
        tasks: Of the run.
        gpus: The GPUs of each task, by its name.
        facts: The machine.
        allowed: Logical processors that this process may use.
    """
    nodes = _nodes(facts, allowed)
    computing = [task for task in tasks if task.computes]
    homes = {
        task.name: _home(task, number, len(computing), gpus, facts, nodes) for number, task in enumerate(computing)
    }
    bound = {}
    for node in nodes:
        here = [task for task in computing if homes[task.name] is node]
        for number, task in enumerate(here):
            bound[task.name] = _share(node, number, len(here), len(nodes) > 1)
    return {task.name: bound.get(task.name, Binding()) for task in tasks}


def _nodes(facts: Facts, allowed: frozenset[int]) -> list[_Node]:
    """Nodes with what this process may use of them; one without a number where the machine has one or tells none."""
    found = []
    for node in facts.numa_nodes:
        cores = [tuple(cpu for cpu in parse_cpus(core) if cpu in allowed) for core in node.cores]
        found.append(_Node(node.index, tuple(core for core in cores if core)))
    found = [node for node in found if node.cores]
    if len(found) > 1:
        return found
    return [_Node(None, found[0].cores if found else tuple((cpu,) for cpu in sorted(allowed)))]


def _home(
    task: Task,
    number: int,
    count: int,
    gpus: Mapping[str, Sequence[int]],
    facts: Facts,
    nodes: Sequence[_Node],
) -> _Node:
    """The node of a worker's GPU; workers without one are spread evenly."""
    own = gpus.get(task.name, ())
    near = {gpu.numa_node for gpu in facts.gpus if gpu.index in own}
    found = next((node for node in nodes if node.index is not None and node.index in near), None)
    return found or nodes[number * len(nodes) // count]


def _share(node: _Node, number: int, count: int, several: bool) -> Binding:
    """The part of a node that one of its workers gets; whole cores where there are enough."""
    if len(node.cpus) // count < LEAST_CPUS:
        return Binding(node.cpus, node.index) if several else Binding()
    if count == 1 and not several:
        return Binding()
    parts: Sequence[tuple[int, ...]] = node.cores if len(node.cores) >= count else [(cpu,) for cpu in node.cpus]
    own = parts[number * len(parts) // count : (number + 1) * len(parts) // count]
    return Binding(tuple(sorted(cpu for part in own for cpu in part)), node.index)
