"""The way from an untouched script to several machines, a stage at a time, each against the one before."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

from tfvolta.bench.contender import Contender
from tfvolta.bench.judged import Comparison, Gate
from tfvolta.facts.schema import Facts

ONE_DEVICE, ONE_NODE, SEVERAL_NODES = "one device", "one node", "several nodes"
_ALONE = ("strategy=null", "communication=null")
_OF_SEVERAL = ("multi_worker_mirrored", "horovod")


@dataclasses.dataclass(frozen=True)
class Way:
    """What is asked for.

    Attributes:
        baseline: Comes first; the untouched script, unless a config says otherwise.
        tuned: The config that is to be shown to be better, without ``strategy``.
        batch: Examples of a step on one device.
        logical_devices: Devices that one CPU pretends to be; None to use GPUs.
        workers: Processes of the last stage; None to leave it out.
        weak: Whether the batch grows with the devices, as it does for people who add GPUs.
    """

    baseline: Contender
    tuned: Contender
    batch: int
    logical_devices: Optional[int] = None
    workers: Optional[int] = None
    weak: bool = True


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        contender: How it trains; None where this machine has no such stage.
        reason: Why it has none.
        devices: Devices that train in step.
    """

    name: str
    contender: Optional[Contender]
    devices: int = 1
    reason: str = ""


def stages(way: Way, facts: Facts) -> list[Stage]:
    """The stages behind the baseline, in order."""
    tuned = dataclasses.replace(way.tuned, name=ONE_DEVICE, overrides=(*way.tuned.overrides, *_ALONE))
    return [Stage(ONE_DEVICE, _sized(tuned, way, 1)), _one_node(way, facts), _several(way)]


def _sized(contender: Contender, way: Way, devices: int) -> Contender:
    return dataclasses.replace(contender, batch=way.batch * devices if way.weak else way.batch)


def _one_node(way: Way, facts: Facts) -> Stage:
    devices = way.logical_devices or len(facts.gpus)
    if devices < 2:
        what = f"this machine has {devices} GPU{'s' * (devices != 1)}"
        return Stage(ONE_NODE, None, reason=f"{what}; --logical-devices 2 tries the way on a CPU")
    added = ["strategy.kind=mirrored"]
    added += [f"strategy.logical_cpus={devices}"] if way.logical_devices else []
    contender = dataclasses.replace(way.tuned, name=ONE_NODE, overrides=(*way.tuned.overrides, *added))
    return Stage(ONE_NODE, _sized(contender, way, devices), devices)


def _several(way: Way) -> Stage:
    if way.workers is None:
        return Stage(SEVERAL_NODES, None, reason="--workers N starts N processes on this machine, as N nodes would be")
    config = way.tuned.load()
    kind = "" if config is None else str(config.get("strategy.kind"))
    chosen = kind if kind in _OF_SEVERAL else _OF_SEVERAL[0]
    overrides = (*way.tuned.overrides, f"strategy.kind={chosen}")
    contender = dataclasses.replace(way.tuned, name=SEVERAL_NODES, overrides=overrides, workers=way.workers)
    return Stage(SEVERAL_NODES, _sized(contender, way, way.workers), way.workers)


def gate(stage: Stage, before: Stage, comparison: Optional[Comparison], reason: str = "") -> Gate:
    """How a stage did against the one before it.

    Args:
        stage: The one that is judged.
        before: The last one that passed.
        comparison: Of both; None where one of them could not be measured.
        reason: Why not.
    """
    assert stage.contender is not None and before.contender is not None
    names = {"stage": stage.name, "treated": stage.contender.name, "reference": before.contender.name}
    if comparison is None:
        return Gate(**names, passes=False, reason=reason)
    efficiency = None
    if stage.devices > before.devices:
        efficiency = comparison.throughput.estimate * before.devices / stage.devices
    return Gate(**names, passes=comparison.wins, comparison=comparison, efficiency=efficiency)


def refused(gates: Sequence[Gate]) -> bool:
    """Whether one of them does not let its change through."""
    return any(each.passes is False for each in gates)
