"""What happens when a fit begins: settings may look at the train step before it runs for the first time."""

from __future__ import annotations

import warnings
from typing import Any

from tfvolta.errors import RecompilationWarning
from tfvolta.outcome import Status
from tfvolta.phase import Phase
from tfvolta.plan import Step
from tfvolta.session.context import LiveContext
from tfvolta.session.ending import Ending
from tfvolta.session.ledger import Ledger


def in_force(ledger: Ledger) -> list[Step]:
    """The steps of the plan that were applied and not given up as late or not applicable."""
    return [step for step in ledger.plan.steps if _is_in_force(ledger.endings.get(step.knob.name))]


def _is_in_force(ending: Any) -> bool:
    return isinstance(ending, Ending) and ending.outcome.status not in (Status.LATE, Status.NOT_APPLICABLE)


class StepJournal:
    """``tfvolta.knobs.base.Journal`` of one step of a plan and one model."""

    def __init__(self, step: Step, ledger: Ledger, context: LiveContext, model: Any):
        self._step = step
        self._ledger = ledger
        self._context = context
        self._model = model

    def settle(self) -> None:
        """Verifies the setting again on the model; a fault raises under a strict config and warns otherwise.

        Raises:
            NoEffectError: It has no effect and the config is strict.
        """
        self._context.model = self._model
        self._ledger.end(self._step, self._step.knob.verify(self._step.value, self._context), Phase.FIT)
        self._ledger.settle([self._step.knob.name])

    def warned(self, text: str) -> None:
        """Puts a warning into the evidence and shows it."""
        self._ledger.recorder.warned(text)
        warnings.warn(text, RecompilationWarning, stacklevel=6)
