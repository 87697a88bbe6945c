"""What XLA cannot compile under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from tfvolta.errors import Problem
from tfvolta.strategy import devices, registry

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


def jit_problem(config: Config, facts: Facts) -> Optional[Problem]:
    """The problem with ``xla.jit: model`` under several replicas, or None where it works or is not asked for.

    On CPU devices the step fails on every stack. On GPUs Keras 2 compiles inside each replica, which works; Keras 3
    compiles around all replicas, and its loss scaling then fails at the first step.
    """
    count = registry.replicas(config, facts)
    if config.get("xla.jit") != "model" or count < 2:
        return None
    kind = registry.find(registry.kind_name(config))
    names = kind.replica_devices(config, devices.planned(config, facts))
    if any(name.startswith("CPU") for name in names):
        why = (
            "XLA compiles the step for one device and cannot reach the copies of the variables on the others: "
            "'Trying to access resource located in device CPU:1'"
        )
    elif facts.keras == "keras3" and config.get("mixed_precision.policy") == "mixed_float16":
        why = (
            "Keras 3 compiles around all replicas, where its LossScaleOptimizer fails: "
            "'merge_call called while defining a new graph'"
        )
    else:
        return None
    return Problem(
        where=devices.where(config, "xla.jit"),
        expected=f"xla.jit: auto, clustering or off with strategy.kind: {kind.name} over {count} replicas",
        received=f"xla.jit: model with {count} replicas on {', '.join(names)}",
        why=why,
        fix="set xla.jit: clustering (XLA compiles the parts of each replica's step that it can), "
        "or train on one device with strategy.kind: default",
    )
