"""A session applies one plan to this process, phase by phase, and knows how every setting ended."""

from __future__ import annotations

import warnings
from typing import Any, MutableMapping, Optional

from tfvolta.config.schema import Config
from tfvolta.errors import ContradictionWarning, TfvoltaError
from tfvolta.facts.schema import Facts
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Phase
from tfvolta.plan import Plan, Step, make_plan
from tfvolta.session.application import apply_step
from tfvolta.session.context import LiveContext
from tfvolta.session.ending import Ending, Origin
from tfvolta.session.first_step import StepJournal, in_force
from tfvolta.session.ledger import Ledger
from tfvolta.session.presence import announce, place_of
from tfvolta.session.recorder import Recorder, SilentRecorder

# Phases whose settings are put on a model, at compile or at fit.
MODEL_PHASES = (Phase.COMPILE, Phase.FIT, Phase.RUNNING)


class Session:
    """One plan in one process.

    Attributes:
        config: What is asked for.
        context: What knobs touch.
        ledger: How every step ended so far.
        recorder: What writes the evidence; ``recorder.path`` is the file.
        reached: The last phase that was entered, or None.
        place: Which process of a run this is.
    """

    def __init__(
        self,
        config: Config,
        facts: Optional[Facts] = None,
        stack: Optional[str] = None,
        origin: Optional[Origin] = None,
        environ: Optional[MutableMapping[str, str]] = None,
    ):
        """Plans, and refuses what cannot work.

        Args:
            config: What is asked for.
            facts: The machine; probed when None.
            stack: Overrides the stack that the environment means.
            origin: What is training.
            environ: The environment to apply to; this process's when None.

        Raises:
            PlanError: The plan has conflicts, or contradictions under a strict config.
            EvidenceError: The run directory cannot be written.
        """
        if facts is None:
            from tfvolta.facts.probe import probe

            facts = probe(stack=stack)
        self.config = config
        origin = origin or Origin()
        self.origin = origin
        self.context = LiveContext(config, facts, environ)
        self.reached: Optional[Phase] = None
        self._under_way: list[Step] = []
        self.is_open = True
        plan = make_plan(config, facts, dict(self.context.environ), origin.script_layers)
        self.place = place_of(self.context.environ, config, facts)
        self.recorder = Recorder(plan, origin, self.place) if origin.record else SilentRecorder()
        self.ledger = Ledger(plan, self.recorder)
        try:
            plan.check()
        except TfvoltaError as error:
            self.close("refused", error)
            raise
        for problem in plan.contradictions:
            warnings.warn(str(problem), ContradictionWarning, stacklevel=2)
        announce(self.place)

    @property
    def plan(self) -> Plan:
        """What is to be done."""
        return self.ledger.plan

    @property
    def endings(self) -> dict[str, Ending]:
        """How every step ended so far, by knob name."""
        return self.ledger.endings

    # -- phases without a model

    def enter(self, phase: Phase) -> None:
        """Applies every setting of the phases up to this one that was not applied yet.

        Model phases are applied by ``attach``. A setting may start TensorFlow, and its start enters the phases before
        it: a call from inside a setting of the same phase or a later one leaves the rest to that setting's own call.

        Raises:
            LateError: A setting is too late and the config is strict; every late one of these phases is listed.
            NoEffectError: Likewise for settings without effect.
        """
        if any(step.knob.phase >= phase for step in self._under_way):
            return
        begun = [*self.endings, *(step.knob.name for step in self._under_way)]
        steps = [
            step
            for step in self.plan.steps
            if step.knob.phase <= phase and step.knob.phase not in MODEL_PHASES and step.knob.name not in begun
        ]
        for step in steps:
            if step.knob.name in self.endings:
                continue
            self._under_way.append(step)
            try:
                self.ledger.end(step, apply_step(step, self.context), phase)
            finally:
                self._under_way.pop()
        self.reached = phase if self.reached is None else max(self.reached, phase)
        self.ledger.settle(step.knob.name for step in steps)

    # -- phases with a model

    def attach(self, model: Any, in_fit: bool = True) -> None:
        """Applies the settings of the compile, fit and running phases to a model.

        Args:
            model: A Keras model of any kind, built or not, compiled or not.
            in_fit: Whether the call comes from inside ``model.fit``.

        Raises:
            LateError: A setting is too late and the config is strict.
            NoEffectError: A setting has no effect and the config is strict.
        """
        self._serve(model)
        if in_fit:
            self.ledger.begin_fit()
        self.context.in_fit = in_fit
        try:
            steps = [step for step in self.plan.steps if step.knob.phase in MODEL_PHASES]
            if not in_fit:
                steps = [step for step in steps if step.knob.phase is Phase.COMPILE]
            for step in steps:
                if (
                    in_fit
                    and step.knob.phase is Phase.COMPILE
                    and _already(step, self.endings.get(step.knob.name), self.context)
                ):
                    continue
                self.ledger.end(step, apply_step(step, self.context), Phase.FIT if in_fit else Phase.COMPILE)
            if in_fit:
                self._end_unreached()
            self.ledger.settle(self.endings if in_fit else [step.knob.name for step in steps])
        finally:
            self.context.in_fit = False

    def _serve(self, model: Any) -> None:
        """Takes the stack from the model; a plan made for another stack is made again for this one."""
        from tfvolta.bridge import bridge_for_stack, stack_of

        stack = stack_of(model)
        self.context.model = model
        bridge_for_stack(stack).mend(model)
        self.serve_stack(stack)

    def serve_stack(self, stack: str) -> None:
        """Makes the plan again where the Keras in use is not the one that it was made for.

        Raises:
            PlanError: The config cannot work on that stack.
        """
        if stack != self.context.stack:
            facts = self.context.facts.model_copy(update={"stack": stack})
            self.context.stack, self.context.facts = stack, facts
            self.ledger.plan = make_plan(self.config, facts, dict(self.context.environ), self.origin.script_layers)
            self.recorder.replanned(self.plan)
            self.plan.check()

    def _end_unreached(self) -> None:
        """Ends the settings whose phase the script never entered: what carries them instead, or what is in force."""
        for step in self.plan.steps:
            if step.knob.phase in MODEL_PHASES or step.knob.name in self.endings:
                continue
            if step.knob.covered_by:
                message = f"the layers existed before the plan was applied; {step.knob.covered_by} carries the setting"
                self.ledger.end(step, Outcome(Status.NOT_APPLICABLE, message), Phase.FIT)
            else:
                self.ledger.end(step, step.knob.verify(step.value, self.context), Phase.FIT)

    def before_first_step(self, model: Any) -> None:
        """Lets settings look at the train step before it runs; to be called when fit begins, after ``attach``."""
        self.context.model = model
        for step in in_force(self.ledger):
            step.knob.before_first_step(step.value, self.context, StepJournal(step, self.ledger, self.context, model))

    def step_traced(self, model: Any) -> None:
        """Looks at what the traced train step really does; to be called once, after the first batch of a fit.

        Raises:
            NoEffectError: A setting has no effect and the config is strict.
        """
        self.context.model = model
        steps = in_force(self.ledger)
        for step in steps:
            self.ledger.end(step, step.knob.verify(step.value, self.context), Phase.RUNNING)
        self.ledger.settle(step.knob.name for step in steps)

    # -- measurements and the end

    def measured(self, name: str, values: dict[str, Any]) -> None:
        """Puts a measurement into the evidence, replacing an earlier one of that name."""
        self.recorder.measured(name, values)

    def undo(self) -> dict[str, bool]:
        """Restores what was there before, last setting first.

        Returns:
            For each applied setting, by knob name, whether it could be undone in this process.
        """
        undone = {}
        for name, ending in reversed(list(self.endings.items())):
            if name in self.ledger.touched and ending.outcome.status is not Status.LATE:
                undone[name] = ending.step.knob.undo(self.context)
        self.recorder.undone(undone)
        return undone

    def close(self, status: str = "completed", error: Optional[BaseException] = None) -> None:
        """Ends the session and its evidence; further calls change nothing."""
        if self.is_open:
            self.is_open = False
            self.recorder.close(status, error)


def _already(step: Step, ending: Optional[Ending], context: LiveContext) -> bool:
    """Whether a compile-phase setting was put on this very model before fit."""
    if ending is None or ending.outcome.status is not Status.APPLIED:
        return False
    return step.knob.verify(step.value, context).status is Status.APPLIED
