"""A session applies one plan to this process, phase by phase, and knows how every setting ended."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Any, Iterable, MutableMapping, Optional

from tfvolta.config.schema import Config
from tfvolta.errors import LateError, LateWarning, NoEffectError, NoEffectWarning, Problem, TfvoltaError
from tfvolta.facts.schema import Facts
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Closure, Phase
from tfvolta.plan import Plan, Step, make_plan
from tfvolta.session.context import LiveContext
from tfvolta.session.recorder import Recorder, SilentRecorder

# Phases whose settings are put on a model, at compile or at fit.
MODEL_PHASES = (Phase.COMPILE, Phase.FIT, Phase.RUNNING)


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


class Session:
    """One plan in one process.

    Attributes:
        plan: What is to be done.
        context: What knobs touch.
        endings: How every step ended so far, by knob name.
        reached: The last phase that was entered, or None.
    """

    def __init__(
        self,
        config: Config,
        facts: Optional[Facts] = None,
        stack: Optional[str] = None,
        origin: Origin = Origin(),
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
        self.origin = origin
        self.context = LiveContext(config, facts, environ)
        self.plan = make_plan(config, facts, dict(self.context.environ), origin.script_layers)
        self.endings: dict[str, Ending] = {}
        self.reached: Optional[Phase] = None
        self.is_open = True
        self.recorder = Recorder(self.plan, origin) if origin.record else SilentRecorder()
        try:
            self.plan.check()
        except TfvoltaError as error:
            self.close("refused", error)
            raise
        self._warn_contradictions()

    def _warn_contradictions(self) -> None:
        from tfvolta.errors import ContradictionWarning

        for problem in self.plan.contradictions:
            warnings.warn(str(problem), ContradictionWarning, stacklevel=3)

    # -- phases without a model

    def enter(self, phase: Phase) -> None:
        """Applies every setting of the phases up to this one that was not applied yet.

        Model phases are applied by ``attach``.

        Raises:
            LateError: A setting is too late and the config is strict; every late one of these phases is listed.
            NoEffectError: Likewise for settings without effect.
        """
        steps = [
            step
            for step in self.plan.steps
            if step.knob.phase <= phase and step.knob.phase not in MODEL_PHASES and step.knob.name not in self.endings
        ]
        for step in steps:
            self._apply(step, phase)
        if phase >= Phase.STRATEGY:
            self._enter_strategy()
        self.reached = phase if self.reached is None else max(self.reached, phase)
        self._settle(step.knob.name for step in steps)

    def _enter_strategy(self) -> None:
        if self.context.strategy is None and self.config.strategy is not None:
            from tfvolta.strategy.factory import build_strategy

            self.context.strategy = build_strategy(self.config, self)

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
        self.context.in_fit = in_fit
        try:
            steps = [step for step in self.plan.steps if step.knob.phase in MODEL_PHASES]
            if not in_fit:
                steps = [step for step in steps if step.knob.phase is Phase.COMPILE]
            for step in steps:
                if in_fit and step.knob.phase is Phase.COMPILE and self._already(step):
                    continue
                self._apply(step, Phase.FIT if in_fit else Phase.COMPILE)
            if in_fit:
                self._end_unreached()
            self._settle(step.knob.name for step in steps)
        finally:
            self.context.in_fit = False

    def _already(self, step: Step) -> bool:
        """Whether a compile-phase setting was put on this very model before fit."""
        ending = self.endings.get(step.knob.name)
        if ending is None or ending.outcome.status is not Status.APPLIED:
            return False
        return step.knob.verify(step.value, self.context).status is Status.APPLIED

    def _serve(self, model: Any) -> None:
        """Takes the stack from the model; a plan made for another stack is made again for this one."""
        from tfvolta.bridge import stack_of

        stack = stack_of(model)
        self.context.model = model
        if stack != self.context.stack:
            facts = self.context.facts.model_copy(update={"stack": stack})
            self.context.stack, self.context.facts = stack, facts
            self.plan = make_plan(self.config, facts, dict(self.context.environ), self.origin.script_layers)
            self.recorder.replanned(self.plan)
            self.plan.check()

    def _end_unreached(self) -> None:
        """Says of build-phase settings that never had their phase that the fit-time carriers take over."""
        for step in self.plan.steps:
            if step.knob.phase is Phase.BUILD and step.knob.name not in self.endings:
                message = "the layers existed before the plan was applied, so the setting is carried at fit time instead"
                self._end(step, Outcome(Status.NOT_APPLICABLE, message), Phase.FIT)

    def step_traced(self, model: Any) -> None:
        """Looks at what the traced train step really does; to be called once, after the first batch of a fit.

        Raises:
            NoEffectError: A setting has no effect and the config is strict.
        """
        self.context.model = model
        steps = [
            step
            for step in self.plan.steps
            if step.knob.phase >= Phase.BUILD
            and step.knob.name in self.endings
            and self.endings[step.knob.name].outcome.status not in (Status.LATE, Status.NOT_APPLICABLE)
        ]
        for step in steps:
            self._end(step, step.knob.verify(step.value, self.context), Phase.RUNNING)
        self._verify_strategy(model)
        self._settle(step.knob.name for step in steps)

    def _verify_strategy(self, model: Any) -> None:
        if self.config.strategy is None:
            return
        from tfvolta.strategy.factory import verify_strategy

        for name, outcome in verify_strategy(self.config, self.context, model).items():
            self.recorder.ended(name, outcome, Phase.RUNNING, None)

    def pending(self) -> list[str]:
        """Names of the knobs that have not ended, in the order of the plan."""
        return [step.knob.name for step in self.plan.steps if step.knob.name not in self.endings]

    # -- outcomes

    def _apply(self, step: Step, seen_in: Phase) -> None:
        knob, context = step.knob, self.context
        if step.forecast.status is Status.NOT_APPLICABLE:
            self._end(step, Outcome(Status.NOT_APPLICABLE, step.forecast.message), seen_in)
            return
        closure = context.closed(knob.closes_at)
        if closure is not None:
            self._end(step, self._late(step, closure), seen_in)
            return
        knob.apply(step.value, context)
        self._end(step, knob.verify(step.value, context), seen_in)

    def _late(self, step: Step, closure: Closure) -> Outcome:
        """LATE, unless what is asked for is in force already."""
        present = step.knob.verify(step.value, self.context)
        if present.status is Status.APPLIED:
            return present
        move_to = closure.move_to or step.knob.move_to
        return Outcome(Status.LATE, f"too late: {closure}. {move_to}", {"closed_by": closure.moment.name})

    def _end(self, step: Step, outcome: Outcome, seen_in: Phase) -> None:
        self.endings[step.knob.name] = Ending(step, outcome, seen_in)
        self.recorder.ended(step.knob.name, outcome, seen_in, step)

    def _settle(self, names: Iterable[str]) -> None:
        """Writes evidence; raises or warns for what ended LATE or NO_EFFECT."""
        self.recorder.write()
        endings = [self.endings[name] for name in names if name in self.endings]
        late = [ending for ending in endings if ending.outcome.status is Status.LATE]
        idle = [
            ending
            for ending in endings
            if ending.outcome.status is Status.NO_EFFECT and not ending.step.forecast.condition
        ]
        if late:
            self._complain(late, LateError, LateWarning, "too late")
        if idle:
            self._complain(idle, NoEffectError, NoEffectWarning, "without effect")

    def _complain(self, endings: list[Ending], error: type[TfvoltaError], warning: type[Warning], what: str) -> None:
        problems = [_problem(ending) for ending in endings]
        message = f"{len(problems)} setting{'s' * (len(problems) > 1)} {what}."
        if self.config.run.strict:
            raise error(message, problems)
        warnings.warn("\n".join([message, *map(str, problems)]), warning, stacklevel=4)

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
            if ending.outcome.status not in (Status.LATE, Status.NOT_APPLICABLE):
                undone[name] = ending.step.knob.undo(self.context)
        self.recorder.undone(undone)
        return undone

    def close(self, status: str = "completed", error: Optional[BaseException] = None) -> None:
        """Ends the session and its evidence; further calls change nothing."""
        if self.is_open:
            self.is_open = False
            self.recorder.close(status, error)


def _problem(ending: Ending) -> Problem:
    step = ending.step
    return Problem(
        where=f"{step.origin}: {step.knob.keys[0]}",
        expected=f"{step.value!r} to take effect in the {step.knob.phase.label} phase",
        received=ending.outcome.status.value,
        why=ending.outcome.message,
        fix=step.knob.move_to or f"remove {step.knob.keys[0]}, or set run.strict: false to go on without it",
    )


_open: list[Session] = []


def session_for(config: Config, origin: Origin = Origin()) -> Session:
    """The open session of a config in this process, or a new one.

    ``build_strategy`` and ``build_callbacks`` of one config share one session, so that settings are applied once
    and land in one piece of evidence.
    """
    _open[:] = [session for session in _open if session.is_open]
    for session in _open:
        if session.config is config or session.config == config:
            return session
    session = Session(config, origin=origin)
    _open.append(session)
    _close_at_exit(session)
    return session


def _close_at_exit(session: Session) -> None:
    import atexit
    import sys

    pid = os.getpid()

    def close() -> None:
        if os.getpid() != pid:
            return  # a forked child ends; the session is its parent's
        error = getattr(sys, "last_value", None)
        if error is None:
            session.close("completed")
        else:
            session.close("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", error)

    atexit.register(close)
