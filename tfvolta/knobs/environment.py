"""Knobs that are environment variables: set before something in TensorFlow, CUDA, cuDNN, XLA or NCCL reads them."""

from __future__ import annotations

from typing import Any, ClassVar, Optional

from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Phase


def initial_environment() -> dict[str, str]:
    """The environment with which this process was started, whatever was changed since; empty where /proc is absent."""
    try:
        with open("/proc/self/environ", encoding="utf-8", errors="replace") as file:
            entries = file.read().split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


class EnvironmentKnob(Knob):
    """Base of the environment family: writes variables, keeps the former ones, and looks for behaviour to verify by.

    A variable that is found in the environment is no proof that anything read it. So ``verify`` asks ``probe`` for
    behaviour and, where a knob has none, says UNVERIFIABLE with ``unverifiable``.

    Attributes:
        needs_gpu: Whether only GPU code reads the variable.
        unverifiable: Why nothing can be read back.
        condition: What must hold for an effect.
    """

    phase = Phase.ENVIRONMENT
    needs_gpu: ClassVar[bool] = True
    unverifiable: ClassVar[str] = ""
    condition: ClassVar[str] = ""

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        """One sentence: what this value does on this machine."""
        del facts, config
        return ", ".join(f"{name}={text}" for name, text in self.variables(value).items())

    def probe(self, value: Any, context: Context) -> Optional[Outcome]:
        """What behaviour shows, or None where there is nothing to see (yet)."""
        del value, context
        return None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if self.needs_gpu and not facts.gpus:
            return Forecast(Status.NOT_APPLICABLE, "This machine has no GPU, and only GPU code reads the variable.")
        status = Status.UNVERIFIABLE if self.unverifiable else Status.APPLIED
        return Forecast(status, self.explain(value, facts, config), self.condition)

    def apply(self, value: Any, context: Context) -> None:
        variables = self.variables(value)
        context.saved.setdefault(self.name, {name: context.environ.get(name) for name in variables})
        for name, text in variables.items():
            context.environ[name] = text

    def verify(self, value: Any, context: Context) -> Outcome:
        if self.needs_gpu and not context.facts.gpus:
            return Outcome(Status.NOT_APPLICABLE, "This machine has no GPU, and only GPU code reads the variable.")
        variables = self.variables(value)
        found = {name: context.environ.get(name) for name in variables}
        changed = [name for name, text in variables.items() if found[name] != text]
        if changed:
            return Outcome(
                Status.NO_EFFECT,
                f"{', '.join(changed)} was changed after tfvolta set it; take the other assignment out.",
                {"environment": found},
            )
        seen = self.probe(value, context)
        if seen is not None:
            return seen
        if (
            self.name not in context.saved
            and variables
            and set(variables.items()) <= set(initial_environment().items())
        ):
            return Outcome(Status.APPLIED, "Was in the environment when the process started.", {"environment": found})
        if self.unverifiable:
            return Outcome(Status.UNVERIFIABLE, self.unverifiable, {"environment": found})
        return Outcome(
            Status.PENDING,
            "Set in time; its behaviour is looked at when TensorFlow has started.",
            {"environment": found},
        )

    def undo(self, context: Context) -> bool:
        """Restores the former variables; False where what reads them has read them already."""
        for name, text in (context.saved.pop(self.name, None) or {}).items():
            if text is None:
                context.environ.pop(name, None)
            else:
                context.environ[name] = text
        return context.closed(self.closes_at) is None
