"""Which devices replicas run on: names, the ones that exist, and how many replicas a config makes."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from tfvolta.errors import Problem

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts

_NAME = re.compile(r"^/?(?:device:)?(gpu|cpu):(\d+)$", re.IGNORECASE)
_WORKER_DEVICE = re.compile(r"^.*/device:", re.IGNORECASE)


def where(config: Config, key: str) -> str:
    """The place that gave a key its value, for ``Problem.where``."""
    from tfvolta.config.provenance import origin_of

    return f"{origin_of(config, key)}: {key}"


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The logical devices of a process, planned or live.

    Attributes:
        gpus: Number of logical GPUs, named ``GPU:0`` on.
        cpus: Number of logical CPUs, named ``CPU:0`` on.
        split: Whether a physical GPU is split into several logical ones (a live process only; no config does that).
        note: Why there is no GPU although one might be expected; empty otherwise.
    """

    gpus: int
    cpus: int
    split: bool = False
    note: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every device, GPUs first."""
        return tuple(f"GPU:{i}" for i in range(self.gpus)) + tuple(f"CPU:{i}" for i in range(self.cpus))

    @property
    def replicas(self) -> tuple[str, ...]:
        """What ``devices: all`` means: every GPU, or the CPUs where there is none."""
        return tuple(name for name in self.names if name.startswith("GPU" if self.gpus else "CPU"))

    @property
    def default_device(self) -> str:
        """Where TensorFlow places variables that nothing else places."""
        return "GPU:0" if self.gpus else "CPU:0"


def planned(config: Config, facts: Facts) -> Inventory:
    """The devices that a process with this config will have on the machine that ``facts`` describe."""
    visible = config.get("devices.visible")
    gpus, note = len(facts.gpus), ""
    build = facts.tensorflow
    if gpus and build is not None and not build.compute_capabilities and build.cuda_version is None:
        gpus, note = 0, f"TensorFlow {build.version} is installed here without CUDA, so it sees none of the GPUs"
    elif isinstance(visible, list):
        gpus = sum(1 for gpu in facts.gpus if gpu.index in visible)
        note = "" if gpus else f"devices.visible: {visible} hides every GPU"
    return Inventory(gpus=gpus, cpus=config.get("strategy.logical_cpus") or 1, note=note)


def live(tensorflow: Any) -> Inventory:
    """The devices that this process has. Initialises the eager context."""
    gpus = len(tensorflow.config.list_logical_devices("GPU"))
    return Inventory(
        gpus=gpus,
        cpus=len(tensorflow.config.list_logical_devices("CPU")),
        split=len(tensorflow.config.get_visible_devices("GPU")) < gpus,
    )


def canonical(name: str) -> Optional[str]:
    """``GPU:0`` for ``gpu:0``, ``/gpu:0`` and ``/device:GPU:0``; None for what names no CPU or GPU."""
    match = _NAME.match(name.strip())
    return f"{match.group(1).upper()}:{int(match.group(2))}" if match else None


def short(name: str) -> str:
    """``GPU:0`` for TensorFlow's ``/job:localhost/replica:0/task:0/device:GPU:0``."""
    return _WORKER_DEVICE.sub("", name)


def resolve(asked: Union[str, Sequence[str], None], inventory: Inventory) -> tuple[str, ...]:
    """The devices that a config's ``strategy.devices`` means; names that do not exist are left to ``problems``."""
    if asked is None or isinstance(asked, str):
        return inventory.replicas
    return tuple(canonical(name) or name for name in asked)


def problems(config: Config, inventory: Inventory) -> list[Problem]:
    """What is wrong with ``strategy.devices``: names that do not exist, and names given twice."""
    asked = config.get("strategy.devices")
    if asked is None or isinstance(asked, str):
        return []
    place = where(config, "strategy.devices")
    names = resolve(asked, inventory)
    if not names:
        return [Problem(place, "all, or at least one device", "[]", fix="set devices: all")]
    found = [_missing(place, name, inventory) for name in dict.fromkeys(names) if name not in inventory.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        found.append(
            Problem(
                where=place,
                expected="each device once",
                received=f"{', '.join(twice)} more than once in [{', '.join(asked)}]",
                why="a replica is the only one on its device",
                fix=f"set devices: [{', '.join(dict.fromkeys(names))}]",
            )
        )
    return found


def _missing(place: str, name: str, inventory: Inventory) -> Problem:
    """A device that is not there, with the nearest one that is."""
    alike = [known for known in inventory.names if known[:3] == name[:3]] if canonical(name) else inventory.names
    nearest = difflib.get_close_matches(name.upper(), alike, n=1, cutoff=0.5)
    fix = f"did you mean {nearest[0]}?" if nearest else ""
    why = inventory.note
    if name.startswith("CPU:"):
        number = int(name[4:]) + 1
        why = "a CPU is one logical device until it is split"
        fix = f"set strategy.logical_cpus: {number}, or " + (f"use {nearest[0]}" if nearest else "use CPU:0")
    elif name.startswith("GPU:") and not why:
        why = "GPUs are numbered from 0 among the visible ones" if inventory.gpus else "this machine has no GPU"
    return Problem(
        where=place,
        expected=f"one of {', '.join(inventory.names)}",
        received=name,
        why=why,
        fix=fix or "set devices: all",
    )


def chosen_outside(config: Config, kind: str, named: tuple[str, str], split: tuple[str, str]) -> list[Problem]:
    """What is wrong with choosing devices for a kind whose processes take those that they see.

    Args:
        kind: Name of the kind.
        named: Why ``strategy.devices`` cannot name any, and what to do instead.
        split: The same for ``strategy.logical_cpus`` above 1; ``{cpus}`` stands for its number.
    """
    asked, cpus = config.get("strategy.devices"), config.get("strategy.logical_cpus")
    found = []
    if isinstance(asked, list):
        found.append(
            Problem(
                where=where(config, "strategy.devices"),
                expected=f"devices: all with strategy.kind: {kind}",
                received=f"devices: [{', '.join(asked)}]",
                why=named[0],
                fix=named[1],
            )
        )
    if cpus is not None and cpus > 1:
        found.append(
            Problem(
                where=where(config, "strategy.logical_cpus"),
                expected=f"one CPU device with strategy.kind: {kind}",
                received=f"logical_cpus: {cpus}",
                why=split[0],
                fix=split[1].format(cpus=cpus),
            )
        )
    return found
