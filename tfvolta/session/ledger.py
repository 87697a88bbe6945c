"""The ledger of a session: how every step of its plan ended, and what follows from that."""

from __future__ import annotations

import warnings
from typing import Iterable, Optional

from absl import logging

from tfvolta.errors import LateError, LateWarning, NoEffectError, NoEffectWarning, PlanError, Problem, TfvoltaError
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Phase
from tfvolta.plan import Plan, Step
from tfvolta.session.ending import Ending, problem_of
from tfvolta.session.recorder import SilentRecorder


class Ledger:
    """How every step ended so far.

    Attributes:
        plan: The plan in force.
        endings: By knob name, in the order in which they ended first.
        touched: Knobs that were applied at some time, whatever they ended as later.
        recorder: What writes the evidence.
    """

    def __init__(self, plan: Plan, recorder: SilentRecorder):
        self.plan = plan
        self.endings: dict[str, Ending] = {}
        self.touched: set[str] = set()
        self.recorder = recorder
        self._warned: set[str] = set()

    def end(self, step: Step, outcome: Outcome, seen_in: Phase) -> None:
        """Enters how a step ended; a later ending replaces an earlier one."""
        former = self.endings.get(step.knob.name)
        self.endings[step.knob.name] = Ending(step, outcome, seen_in)
        if outcome.status not in (Status.LATE, Status.NOT_APPLICABLE):
            self.touched.add(step.knob.name)
        if former is None or former.outcome.status is not outcome.status:
            # What is wrong with it is raised or warned of by ``settle``.
            logging.info("tfvolta: %s %s: %s", step.knob.name, outcome.status.value, outcome.message)
        self.recorder.ended(step.knob.name, outcome, seen_in, step)

    def settle(self, names: Iterable[str]) -> None:
        """Writes evidence; raises or warns for what ended LATE or NO_EFFECT."""
        self.recorder.write()
        for error, warning in self._faults(names):
            if self.plan.config.run.strict:
                raise error
            if str(error) not in self._warned:  # a setting is looked at more than once
                self._warned.add(str(error))
                warnings.warn(str(error), warning, stacklevel=4)

    def begin_fit(self) -> None:
        """What was warned of in an earlier fit is warned of again."""
        self._warned.clear()

    def fault(self) -> Optional[TfvoltaError]:
        """The error that stands at this moment, raised before or not; lateness stands under a strict config only."""
        try:
            self.plan.check()
        except PlanError as error:
            return error
        faults = self._faults(self.endings) if self.plan.config.run.strict else []
        return faults[0][0] if faults else None

    def _faults(self, names: Iterable[str]) -> list[tuple[TfvoltaError, type[Warning]]]:
        """What is wrong with how settings ended: lateness first, then what has no effect and was not announced."""
        endings = [self.endings[name] for name in names if name in self.endings and not self._covered(name)]
        late = [ending for ending in endings if ending.outcome.status is Status.LATE]
        idle = [
            ending
            for ending in endings
            if ending.outcome.status is Status.NO_EFFECT and not ending.step.forecast.condition
        ]
        faults: list[tuple[TfvoltaError, type[Warning]]] = []
        if late:
            faults.append((LateError(_count(late, "too late"), map(self._problem, late)), LateWarning))
        if idle:
            faults.append((NoEffectError(_count(idle, "without effect"), map(self._problem, idle)), NoEffectWarning))
        return faults

    def _problem(self, ending: Ending) -> Problem:
        return problem_of(ending, self.plan.config)

    def _covered(self, name: str) -> bool:
        """Whether another knob of the plan reaches the same goal later, so that this one may fall short."""
        return any(step.knob.name == self.endings[name].step.knob.covered_by for step in self.plan.steps)

    def summary(self) -> str:
        """How the settings ended, in a line, such as ``retrofit APPLIED, jit APPLIED``."""
        return ", ".join(f"{name} {ending.outcome.status.value}" for name, ending in self.endings.items())

    def pending(self) -> list[str]:
        """Names of the knobs that have not ended, in the order of the plan."""
        return [step.knob.name for step in self.plan.steps if step.knob.name not in self.endings]


def _count(endings: list[Ending], what: str) -> str:
    return f"{len(endings)} setting{'s' * (len(endings) > 1)} {what}."
