"""What XLA cannot compile under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.jit_decision import REPLICAS_FIX, replica_fault
from tfvolta.strategy import devices, registry

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


def jit_problem(config: Config, facts: Facts) -> Optional[Problem]:
    """The problem with ``xla.jit: model`` under several replicas, or None where it works or is not asked for."""
    count = registry.replicas(config, facts)
    kind = registry.find(registry.kind_name(config))
    if config.get("xla.jit") != "model" or (count < 2 and not kind.jit_fault()):
        return None
    names = kind.replica_devices(config, devices.planned(config, facts))
    why = kind.jit_fault() or replica_fault(names, count)
    if why is None:
        return None
    return Problem(
        where=devices.where(config, "xla.jit"),
        expected=f"xla.jit: auto, clustering or off with strategy.kind: {kind.name} over {count} replicas",
        received=f"xla.jit: model with {count} replicas on {', '.join(names)}",
        why=why,
        fix=REPLICAS_FIX,
    )
