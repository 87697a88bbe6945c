"""The rungs of a ladder: which sections of a config each has."""

from __future__ import annotations

import dataclasses

from tfvolta.config.schema import Config
from tfvolta.outcome import Status
from tfvolta.plan import Plan

PLAIN = "plain"
# In the order in which they are added. Sections that only work together share a rung.
GROUPS = (
    ("precision", ("mixed_precision", "math")),
    ("kernels", ("kernels", "cudnn", "graph")),
    ("xla", ("xla",)),
    ("memory", ("devices", "memory")),
    ("loop", ("fit", "optimizer", "learning_rate", "addons")),
    ("input", ("input", "sequences", "data")),
    ("strategy", ("strategy", "communication", "nccl", "horovod", "cluster")),
    ("watching", ("gradient_monitor", "alarms", "watchdog", "debug")),
)
EVERYWHERE = ("run", "monitor")  # the same measurements on every rung, the plain one included
NOWHERE = ("checkpoint", "guard")  # a rung neither goes on from a checkpoint nor leaves one, and is held to nothing


@dataclasses.dataclass(frozen=True)
class Rung:
    """One rung.

    Attributes:
        name: ``plain``, or the name of what it adds.
        sections: Sections of the config that are in force, but those that every rung has.
        added: Those that the rung before does not have.
    """

    name: str
    sections: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def rungs_of(plan: Plan, hidden_gpu: bool = False) -> tuple[list[Rung], dict[str, str]]:
    """The rungs of a plan's config, from the plain one to the whole config.

    Args:
        plan: Of the whole config.
        hidden_gpu: Whether TensorFlow may find a GPU that the plan's facts do not know.

    Returns:
        The rungs, and for each group of sections that gets none, because nothing of it applies to this machine and
        stack, the reason.
    """
    rungs, idle = [Rung(PLAIN)], {}
    for name, sections in GROUPS:
        given = tuple(section for section in sections if getattr(plan.config, section) is not None)
        if not given:
            continue
        why = _idle(plan, given, hidden_gpu)
        if why:
            idle[name] = why
        else:
            rungs.append(Rung(name, (*rungs[-1].sections, *given), given))
    return rungs, idle


def config_of(config: Config, rung: Rung) -> Config:
    """The part of a config that a rung has; what is left keeps its origins."""
    kept = {*rung.sections, *EVERYWHERE}
    part = config.model_copy(update={name: None for name in type(config).model_fields if name not in kept})
    part._provenance = {key: origin for key, origin in config.provenance.items() if key.split(".")[0] in kept}
    return part


def _idle(plan: Plan, sections: tuple[str, ...], hidden_gpu: bool) -> str:
    """Why nothing of these sections applies here; empty where something may."""
    steps = [step for step in plan.steps if step.knob.keys[0].split(".")[0] in sections]
    applies = [step.forecast.status is not Status.NOT_APPLICABLE for step in steps]
    if any(applies) or (hidden_gpu and any(step.knob.asks_tensorflow for step in steps)):
        return ""
    reasons = dict.fromkeys(step.forecast.message for step in steps)
    return " ".join(reasons) or f"{', '.join(sections)} asks for nothing"
