"""How a step ended, and what is training."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.removal import in_words, removal
from tfvolta.outcome import Outcome
from tfvolta.phase import Phase
from tfvolta.plan import Step


@dataclasses.dataclass(frozen=True)
class Ending:
    """How one step ended, and where in the script that became known."""

    step: Step
    outcome: Outcome
    seen_in: Phase


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is training and how it was started, for the evidence.

    Attributes:
        command: The command line, or None for this process's own.
        script: Path of the script, or None.
        script_layers: Names of Keras layers that the script's source constructs.
        record: Whether evidence is written to the run directory.
    """

    command: Optional[list[str]] = None
    script: Optional[str] = None
    script_layers: frozenset[str] = frozenset()
    record: bool = True


def problem_of(ending: Ending, config: Any) -> Problem:
    """What is wrong with a setting that came late or has no effect, with the fix.

    Args:
        ending: How it ended.
        config: The config that asks for it.
    """
    step = ending.step
    return Problem(
        where=f"{step.origin}: {step.knob.keys[0]}",
        expected=f"{in_words(step.to_json()['value'])} to take effect in the {step.knob.phase.label} phase",
        received=ending.outcome.status.value,
        why=ending.outcome.message,
        fix=ending.outcome.fix or step.knob.move_to or removal(step.knob, config),
    )
