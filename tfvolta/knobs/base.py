"""What a knob is: one setting that knows when it binds, how to apply it, and how to see that it took effect."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, Mapping, MutableMapping, Optional, Protocol

from tfvolta.errors import Problem
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Closure, Moment, Phase


class Context(Protocol):
    """What a knob may touch. The live one is the session's; tests use a recorded one.

    Attributes:
        facts: ``tfvolta.facts.schema.Facts`` of this machine.
        stack: ``keras3``, ``tf_keras`` or ``keras2``: the stack of the model where there is one.
        environ: The process environment; every write is journaled, so that it can be undone and reported.
        model: The model being trained; None before the build phase.
        saved: Values that ``undo`` needs, by knob name.
        config: The whole ``tfvolta.config.schema.Config``.
        strategy: The strategy that the plan built, or None.
    """

    facts: Any
    stack: str
    environ: MutableMapping[str, str]
    model: Optional[Any]
    saved: dict[str, Any]
    config: Any
    strategy: Optional[Any]

    @property
    def tensorflow(self) -> Any:
        """The tensorflow module, imported at this moment if it was not; not to be touched in the environment phase."""

    @property
    def bridge(self) -> Any:
        """``tfvolta.bridge.base.Bridge`` of ``stack``."""

    def closed(self, moment: Moment) -> Optional[Closure]:
        """What closed a moment in this process, or None while it is still open."""


class Journal(Protocol):
    """Where a knob puts what it finds out while training runs."""

    def settle(self) -> None:
        """Verifies the knob again and enters how it ended now.

        Raises:
            NoEffectError: It has no effect and the config is strict.
        """

    def warned(self, text: str) -> None:
        """Takes what the reader should know, once."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a plan says will happen on this machine and stack.

    Attributes:
        status: The outcome that is expected.
        message: One sentence for a person.
        condition: What must hold for ``status``, such as ``XLA does not compile the step``; empty when nothing must.
            An outcome of NO_EFFECT is then no error, even under a strict config: it was announced.
    """

    status: Status
    message: str
    condition: str = ""


class Knob(abc.ABC):
    """One setting.

    ``value`` says what the config asks for (None: leave alone), ``forecast`` what will happen on a machine,
    without TensorFlow; ``apply`` sets it, ``verify`` reads it back or looks at behaviour, ``undo`` restores what
    was there before. A knob never swallows lateness: the session asks ``context.closed(knob.closes_at)`` before it
    applies, and reports LATE with ``move_to``.

    Attributes:
        name: Unique, in snake_case, the stem of its card ``knobs/cards/<name>.md``.
        keys: Config keys that it carries, the main one first.
        phase: Where in a script it belongs.
        closes_at: What makes it late; may be finer than the phase.
        move_to: The instruction shown with LATE: which line to put where.
        techniques: Ids of the tuning techniques that it carries, such as ``("M11",)``.
        changes_results: Whether numerical results can change, beyond the rounding of another order of the same sums.
        undoable: Whether ``undo`` can restore the former state inside the process.
        covered_by: A knob of a later phase that reaches the same goal; where it is part of the plan, LATE or NO_EFFECT
            of this one is no error. Empty for most.
        asks_tensorflow: Whether ``apply`` and ``verify`` look for themselves at the GPUs that TensorFlow has, and do
            nothing where there are none. Such a knob is applied even where facts know of no GPU, as in a container that
            shows CUDA and hides the driver's management library.
    """

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    phase: ClassVar[Phase]
    closes_at: ClassVar[Moment]
    move_to: ClassVar[str] = ""
    techniques: ClassVar[tuple[str, ...]] = ()
    changes_results: ClassVar[bool] = False
    undoable: ClassVar[bool] = True
    covered_by: ClassVar[str] = ""
    asks_tensorflow: ClassVar[bool] = False

    def value(self, config: Any) -> Optional[Any]:
        """What the config asks for, or None to leave the setting alone."""
        return config.get(self.keys[0])

    def variables(self, value: Any) -> dict[str, str]:
        """Environment variables that applying this value would set; empty for other kinds of knob."""
        del value
        return {}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        """Why this value cannot work on this machine or in this environment; a plan with problems is refused."""
        del value, facts, environ
        return []

    def changes_results_by(self, key: str) -> bool:
        """Whether results can change by one of its keys; the same for all of them unless a knob says otherwise."""
        del key
        return self.changes_results

    @abc.abstractmethod
    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        """What will happen with this value on the machine that ``facts`` describe."""

    @abc.abstractmethod
    def apply(self, value: Any, context: Context) -> None:
        """Sets the value; what ``undo`` needs goes into ``context.saved[self.name]``."""

    @abc.abstractmethod
    def verify(self, value: Any, context: Context) -> Outcome:
        """Reads the value back, or looks at behaviour; called after ``apply`` and when a train step was traced."""

    def before_first_step(self, value: Any, context: Context, journal: Journal) -> None:
        """Looks at the train step or its data when fit begins, before the first step; most knobs need not."""
        del value, context, journal

    def after_fit(self, value: Any, context: Context) -> None:
        """Takes back what was meant for one fit; most settings stay on the model."""
        del value, context

    def undo(self, context: Context) -> bool:
        """Restores what was there before ``apply``; False when that cannot be done in a live process."""
        del context
        return False
