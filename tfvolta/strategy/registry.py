"""The strategy kinds that exist, and everything that a plan can say about them without TensorFlow."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Mapping, Optional

from tfvolta.errors import PlanError, Problem
from tfvolta.knobs.base import Forecast
from tfvolta.outcome import Status
from tfvolta.strategy import communication, devices, topology
from tfvolta.strategy.default import Default
from tfvolta.strategy.horovod import Horovod, stray_section
from tfvolta.strategy.kind import Kind
from tfvolta.strategy.mirrored import Mirrored
from tfvolta.strategy.multi_worker import MultiWorkerMirrored
from tfvolta.strategy.one_device import OneDevice
from tfvolta.strategy.parameter_server import ParameterServer
from tfvolta.strategy.reduction import unreduced

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts

_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Adds a kind.

    Raises:
        ValueError: Its name is taken.
    """
    if kind.name in _KINDS:
        raise ValueError(
            f"strategy kind '{kind.name}' is already registered by {type(_KINDS[kind.name]).__qualname__}; "
            f"{type(kind).__qualname__} needs a name of its own"
        )
    _KINDS[kind.name] = kind
    return kind


def kinds() -> tuple[Kind, ...]:
    """Every registered kind."""
    return tuple(_KINDS.values())


def kind_name(config: Config) -> str:
    """The kind that a config asks for; ``default`` where it has no strategy section."""
    return str(config.get("strategy.kind") or Default.name)


def unknown_kind(name: str, place: str) -> Optional[Problem]:
    """The problem with a kind that is not registered; None for one that is."""
    if name in _KINDS:
        return None
    nearest = difflib.get_close_matches(name, _KINDS, n=1)
    listed = "; ".join(f"{kind.name} ({kind.description})" for kind in kinds())
    return Problem(
        where=place,
        expected=f"one of the kinds that this version has: {listed}",
        received=name,
        why="no strategy of that kind is registered",
        fix=f"did you mean {nearest[0]}? set strategy.kind: {nearest[0]}" if nearest else "set strategy.kind: mirrored",
    )


def find(name: str, place: str = "strategy.kind") -> Kind:
    """A kind by its name.

    Raises:
        PlanError: It is not registered; the message lists those that are.
    """
    problem = unknown_kind(name, place)
    if problem is not None:
        raise PlanError(f"There is no strategy kind '{name}'.", [problem])
    return _KINDS[name]


def problems(config: Config, facts: Facts, environ: Optional[Mapping[str, str]] = None) -> list[Problem]:
    """Everything that the strategy, communication and XLA sections cannot have together on a machine.

    Args:
        environ: What the processes of a cluster are read from; this process's environment where None.
    """
    from tfvolta.strategy.jit import jit_problem

    name = kind_name(config)
    unknown = unknown_kind(name, devices.where(config, "strategy.kind"))
    if unknown is not None:
        return [unknown, *communication.missing_keys(config, name)]
    found = [*_KINDS[name].problems(config, facts, environ), *unreduced(config, name)]
    more = (stray_section(config), _stray_shards(config, name), jit_problem(config, facts))
    return [*found, *(problem for problem in more if problem is not None)]


def _stray_shards(config: Config, name: str) -> Optional[Problem]:
    """A limit above which variables are divided, under a kind that keeps each of them whole."""
    limit = config.get("strategy.shard_above_mb")
    if limit is None or "strategy.shard_above_mb" in _KINDS[name].keys:
        return None
    return Problem(
        where=devices.where(config, "strategy.shard_above_mb"),
        expected="strategy.kind: parameter_server, whose servers each hold a part of a large variable",
        received=f"strategy.shard_above_mb: {limit} with strategy.kind: {name}",
        why="every replica has each variable whole",
        fix="remove strategy.shard_above_mb, or set strategy.kind: parameter_server",
    )


def replicas(config: Config, facts: Facts) -> int:
    """How many replicas a config makes, on this machine and on all workers together where these are known.

    1 where its kind is not registered.
    """
    kind = _KINDS.get(kind_name(config))
    if kind is None:
        return 1
    return kind.workers(config, facts) * len(kind.replica_devices(config, devices.planned(config, facts)))


def starts_tensorflow(config: Config) -> bool:
    """Whether the strategy of a config must be made before anything else starts TensorFlow's devices."""
    kind = _KINDS.get(kind_name(config))
    return kind is not None and kind.starts_tensorflow


def forecast(config: Config, facts: Facts) -> Forecast:
    """What the strategy section will do on a machine.

    Raises:
        PlanError: The kind is not registered.
    """
    return find(kind_name(config)).forecast(config, facts)


def forecast_communication(config: Config, facts: Facts) -> Forecast:
    """What the communication section will do on a machine."""
    own = find(kind_name(config)).forecast_communication(config, facts)
    if own is not None:
        return own
    count = replicas(config, facts)
    asked = communication.asked(config)
    if count == 1 and kind_name(config) != MultiWorkerMirrored.name:
        if not asked:
            return Forecast(Status.NOT_APPLICABLE, "One replica: there is nothing to reduce.")
        names = ", ".join(f"communication.{key}" for key in asked)
        return Forecast(
            Status.NO_EFFECT, f"One replica: nothing is reduced, so {names} changes nothing.", "one device is visible"
        )
    if not asked:
        how = "NCCL" if devices.planned(config, facts).gpus else "a ring over the CPU devices"
        return Forecast(
            Status.APPLIED,
            f"TensorFlow's default over {count} replicas: collectives with {how}, in one pack{_limit(config)}."
            + _links(config, facts),
        )
    return _asked(config, facts, count)


def _links(config: Config, facts: Facts) -> str:
    """How NCCL will use the links of this machine, as a sentence with a blank before it; empty without NCCL."""
    inventory = devices.planned(config, facts)
    if not inventory.gpus or communication.implementation(config) not in ("auto", "nccl"):
        return ""
    kind = _KINDS[kind_name(config)]
    used = [name for name in kind.replica_devices(config, inventory) if name.startswith("GPU")]
    text = topology.sentence(config, facts, len(used), kind.workers(config, facts))
    return f" {text}" if text else ""


def _limit(config: Config) -> str:
    """The limit of a collective between workers, for a sentence."""
    if kind_name(config) != MultiWorkerMirrored.name:
        return ""
    return f", each with a limit of {communication.timeout_seconds(config):g} s"


def _asked(config: Config, facts: Facts, count: int) -> Forecast:
    packs, size = config.get("communication.num_packs"), config.get("communication.pack_mb")
    packing = {None: "one pack", 0: "one tensor at a time", 1: "one pack"}.get(packs, f"{packs} packs")
    packing = packing if size is None else f"packs of {size} MiB or more"
    message = (
        f"{communication.implementation(config)} over {count} replicas, {packing}{_limit(config)}; "
        f"verified in the traced train step.{_links(config, facts)}"
    )
    if communication.implementation(config) == "auto" or kind_name(config) == MultiWorkerMirrored.name:
        return Forecast(Status.APPLIED, message)  # by collectives, which a compiled step has too
    if not devices.planned(config, facts).gpus or config.get("xla.jit") in ("off", "clustering"):
        return Forecast(Status.APPLIED, message)
    if config.get("xla.jit") == "model":
        from tfvolta.strategy.packing import XLA_INSTEAD

        return Forecast(
            Status.NO_EFFECT,
            f"XLA compiles the train step; MirroredStrategy then ignores implementation and num_packs: {XLA_INSTEAD}.",
        )
    return Forecast(Status.APPLIED, message, "XLA does not compile the train step")


for _kind in (Default(), OneDevice(), Mirrored(), MultiWorkerMirrored(), ParameterServer(), Horovod()):
    register(_kind)
