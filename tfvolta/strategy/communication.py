"""What each strategy kind really has of the config's communication section, and what stands in for the rest.

Source: ``mirrored_strategy.py``, ``cross_device_ops.py`` and ``collective_all_reduce_strategy.py``,
TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Iterator, Mapping, Sequence

from tfvolta.errors import Problem
from tfvolta.strategy.devices import Inventory, where

if TYPE_CHECKING:
    from tfvolta.config.schema import Config

MIB = 1024 * 1024
AMOUNTS = ("num_packs", "pack_mb", "timeout_seconds", "hierarchical", "cycle_time_ms", "groups")
KEYS: Mapping[str, tuple[str, ...]] = {
    "mirrored": ("num_packs", "pack_mb"),
    "multi_worker_mirrored": ("pack_mb", "timeout_seconds"),
    "horovod": ("pack_mb", "hierarchical", "cycle_time_ms", "groups"),
}
IMPLEMENTATIONS: Mapping[str, tuple[str, ...]] = {
    "mirrored": ("auto", "nccl", "hierarchical_copy", "reduction_to_one_device"),
    "multi_worker_mirrored": ("auto", "nccl", "ring"),
    "horovod": ("auto", "nccl"),
}
PACKED = ("nccl", "hierarchical_copy")
# TensorFlow's own default is no limit: one worker that is stuck leaves the others waiting for ever.
DEFAULT_TIMEOUT_SECONDS = 600.0

_ARITHMETIC = (
    "pack_mb ~ bytes of all gradients / num_packs / 2**20 "
    "(25.6 million float32 gradients are 98 MiB: 4 packs are pack_mb: 25)"
)
_WHY: Mapping[tuple[str, str], tuple[str, str]] = {
    ("mirrored", "timeout_seconds"): (
        "MirroredStrategy passes no limit to its collectives, and needs none: its replicas are threads of one process, "
        "so none of them can be lost while the others wait",
        "remove timeout_seconds; multi_worker_mirrored has one, because there a worker can be lost",
    ),
    ("multi_worker_mirrored", "num_packs"): (
        "MultiWorkerMirroredStrategy sizes its packs (bytes_per_pack) and does not count them",
        f"set {_ARITHMETIC}",
    ),
    ("horovod", "num_packs"): (
        "Horovod fuses gradients up to a size (its fusion threshold) and does not count packs",
        f"set {_ARITHMETIC}",
    ),
    ("horovod", "timeout_seconds"): (
        "Horovod has no limit for one collective; its stall check (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS) neither warned "
        "nor ended anything in trials with one rank asleep",
        "set watchdog.stall_seconds, which ends a rank that makes no progress, and remove timeout_seconds",
    ),
    ("mirrored", "hierarchical"): (
        "MirroredStrategy reduces inside one process; what it has of a hierarchy is an implementation",
        "set implementation: hierarchical_copy in place of hierarchical",
    ),
    ("multi_worker_mirrored", "hierarchical"): (
        "NCCL finds the hierarchy of GPUs and machines by itself",
        "remove hierarchical; nccl.algorithm: Tree insists on trees between machines",
    ),
    **{
        (kind, "cycle_time_ms"): (
            "TensorFlow's collectives start as soon as a pack is there; nothing looks for gradients in cycles",
            "remove cycle_time_ms; pack_mb sizes the packs",
        )
        for kind in ("mirrored", "multi_worker_mirrored")
    },
    ("mirrored", "groups"): (
        "MirroredStrategy has packs of gradients, a number of them or of a size, and no groups",
        "set num_packs with implementation nccl or hierarchical_copy, or pack_mb with auto, in place of groups",
    ),
    ("multi_worker_mirrored", "groups"): (
        "MultiWorkerMirroredStrategy has packs of a size and no groups",
        "set pack_mb ~ bytes of all gradients / groups / 2**20 in place of groups",
    ),
    ("parameter_server", "timeout_seconds"): (
        "workers do not wait for each other, so there is no collective; a lost process is noticed by its connection",
        "remove timeout_seconds; watchdog.stall_seconds says how long a step may take",
    ),
    **{
        ("parameter_server", key): (
            "each worker sends the gradient of each variable to the variable's server, and nothing is reduced",
            f"remove {key}; strategy.shard_above_mb divides large variables, and so their gradients, over the servers",
        )
        for key in ("implementation", "num_packs", "pack_mb", "hierarchical", "cycle_time_ms", "groups")
    },
}


def pack_mb_for(gradient_bytes: int, num_packs: int) -> int:
    """The ``pack_mb`` that makes about as many packs as ``num_packs`` asks for.

    Args:
        gradient_bytes: Bytes of all gradients together, as they are reduced: float32, also under mixed precision.
        num_packs: Packs wanted; 0 (one per tensor) is nearest to the smallest pack.

    Returns:
        MiB, at least 1.
    """
    return max(1, math.ceil(gradient_bytes / max(1, num_packs) / MIB)) if num_packs else 1


def num_packs_for(gradient_bytes: int, pack_mb: int) -> int:
    """The ``num_packs`` whose packs have about ``pack_mb`` MiB; at least 1."""
    return max(1, round(gradient_bytes / (pack_mb * MIB)))


def implementation(config: Config) -> str:
    """The all-reduce asked for; ``auto`` where nothing is."""
    return str(config.get("communication.implementation") or "auto")


def timeout_seconds(config: Config) -> float:
    """The limit for one collective between workers."""
    given = config.get("communication.timeout_seconds")
    return DEFAULT_TIMEOUT_SECONDS if given is None else float(given)


def pack_bytes(config: Config) -> int:
    """The size that a pack of gradients has at least; 0 where nothing is asked: one pack for all."""
    return int(config.get("communication.pack_mb") or 0) * MIB


def asked(config: Config) -> tuple[str, ...]:
    """Names of the keys of the communication section that ask for something."""
    given = tuple(key for key in AMOUNTS if config.get(f"communication.{key}") is not None)
    return given if implementation(config) == "auto" else ("implementation", *given)


def missing_keys(config: Config, kind: str) -> list[Problem]:
    """What a kind does not have at all, each with what stands in for it.

    Args:
        kind: Any kind of the schema, registered or not.
    """
    found = []
    for key in asked(config):
        if key == "implementation":
            if kind not in IMPLEMENTATIONS:
                found.append(_missing(config, kind, key))
        elif key not in KEYS.get(kind, ()):
            found.append(_missing(config, kind, key))
    return found


def _missing(config: Config, kind: str, key: str) -> Problem:
    value = config.get(f"communication.{key}")
    why, fix = _WHY.get(
        (kind, key),
        (f"strategy.kind: {kind} reduces no gradients over devices", f"remove {key}, or set strategy.kind: mirrored"),
    )
    return Problem(
        where=where(config, f"communication.{key}"),
        expected=f"a setting that strategy.kind: {kind} has ({', '.join(KEYS.get(kind, ())) or 'it has none'})",
        received=f"{key}: {value}",
        why=why,
        fix=fix,
    )


def mirrored_problems(config: Config, devices: Sequence[str], inventory: Inventory) -> list[Problem]:
    """What MirroredStrategy cannot do of the communication section on these devices."""
    return [
        *missing_keys(config, "mirrored"),
        *_ring(config, devices),
        *_nccl(config, devices, inventory),
        *_odd_hierarchy(config, devices),
        *_packs(config, devices),
    ]


def _ring(config: Config, devices: Sequence[str]) -> Iterator[Problem]:
    if implementation(config) != "ring":
        return
    on_cpu = _has_cpu(devices)
    yield Problem(
        where=where(config, "communication.implementation"),
        expected="auto, nccl, hierarchical_copy or reduction_to_one_device",
        received="ring",
        why="MirroredStrategy has no public choice of TensorFlow's own ring; "
        + (
            "it takes that ring by itself on CPU devices" if on_cpu else "NCCL does it on GPUs, and forms its own rings"
        ),
        fix="set implementation: auto"
        if on_cpu
        else "set implementation: nccl (nccl.algorithm: Ring insists on a ring)",
    )


def _nccl(config: Config, devices: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    if implementation(config) != "nccl":
        return
    if _has_cpu(devices):
        yield Problem(
            where=where(config, "communication.implementation"),
            expected="an all-reduce that has a kernel on " + ", ".join(devices),
            received="nccl",
            why="TensorFlow registers NcclAllReduce for GPUs only; the first training step would fail with "
            "'No OpKernel was registered'" + (f" ({inventory.note})" if inventory.note else ""),
            fix="set implementation: hierarchical_copy (it takes num_packs too), or train on GPUs",
        )
    elif inventory.split and len(devices) > 1:
        yield Problem(
            where=where(config, "communication.implementation"),
            expected="one logical device per GPU",
            received="nccl with a GPU that is split into several logical devices",
            why="NCCL takes each physical GPU once; TensorFlow's default falls back to its own ring there",
            fix="give each GPU one logical device (a memory limit alone splits nothing), or set implementation: auto",
        )


def _odd_hierarchy(config: Config, devices: Sequence[str]) -> Iterator[Problem]:
    if implementation(config) != "hierarchical_copy" or len(devices) < 3 or len(devices) % 2 == 0:
        return
    yield Problem(
        where=where(config, "communication.implementation"),
        expected="an even number of replicas with hierarchical_copy",
        received=f"{len(devices)} replicas",
        why="TensorFlow's hierarchical copy adds up two groups of equal size, so with an odd number of replicas "
        "the gradient of one replica is left out without a word and the weights are wrong",
        fix=f"set devices: [{', '.join(devices[:-1])}], or implementation: "
        + ("reduction_to_one_device" if _has_cpu(devices) else "nccl"),
    )


def _packs(config: Config, devices: Sequence[str]) -> Iterator[Problem]:
    algorithm = implementation(config)
    number, size = config.get("communication.num_packs"), config.get("communication.pack_mb")
    if number is not None and algorithm not in (*PACKED, "ring"):
        yield _not_counted(config, algorithm, "hierarchical_copy" if _has_cpu(devices) else "nccl")
    if size is not None and algorithm not in ("auto", "ring"):
        yield Problem(
            where=where(config, "communication.pack_mb"),
            expected="pack_mb with implementation: auto",
            received=f"pack_mb: {size} with implementation: {algorithm}",
            why="packs of a size are those of TensorFlow's default, CollectiveAllReduce (NCCL on GPUs too); "
            + ("the packs of this one are counted" if algorithm in PACKED else "this one has no packs"),
            fix="set implementation: auto"
            + (
                f", or num_packs ~ bytes of all gradients / (pack_mb * 2**20) in place of pack_mb (98 MiB of gradients "
                f"and pack_mb: {size} are num_packs: {num_packs_for(98 * MIB, size)})"
                if algorithm in PACKED
                else ", or remove pack_mb"
            ),
        )


def _not_counted(config: Config, algorithm: str, packed: str) -> Problem:
    """A number of packs for an all-reduce that counts none."""
    why = (
        "TensorFlow's default for MirroredStrategy is CollectiveAllReduce (with NCCL on GPUs), which sizes its packs "
        "and takes no number; NcclAllReduce is not the default, whatever its documentation says"
        if algorithm == "auto"
        else "ReductionToOneDevice adds up each gradient by itself and has no packs"
    )
    return Problem(
        where=where(config, "communication.num_packs"),
        expected="num_packs with implementation nccl or hierarchical_copy",
        received=f"num_packs: {config.get('communication.num_packs')} with implementation: {algorithm}",
        why=why,
        fix=f"set implementation: {packed}, or remove num_packs"
        + (f", or set {_ARITHMETIC} in its place" if algorithm == "auto" else ""),
    )


def _has_cpu(devices: Sequence[str]) -> bool:
    return any(name.startswith("CPU") for name in devices)
