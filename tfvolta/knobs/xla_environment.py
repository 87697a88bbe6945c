"""XLA's flags, joined to the user's own."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.errors import Problem
from tfvolta.knobs.base import Context, Forecast
from tfvolta.knobs.environment import EnvironmentKnob, initial_environment
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment

VARIABLE = "XLA_FLAGS"


class XlaFlags(EnvironmentKnob):
    """Adds flags to ``XLA_FLAGS`` and keeps those that are there. A flag that XLA does not know aborts the process.

    Binds: at the first XLA compilation in the process.
    """

    name = "xla_flags"
    keys = ("xla.flags",)
    closes_at = Moment.XLA_COMPILED
    move_to = "set XLA_FLAGS (or build the strategy from the config) before anything is compiled with XLA"
    techniques = ("K1", "K5")
    needs_gpu = False
    condition = "XLA compiles something"
    unverifiable = (
        "XLA reads its flags once and has no call that returns them; an unknown one would have aborted the process."
    )

    def value(self, config: Any) -> Optional[Any]:
        return list(config.get("xla.flags") or ()) or None

    def variables(self, value: Any) -> dict[str, str]:
        return {VARIABLE: " ".join(value)}

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        from tfvolta.knobs.xla_flags import check_flags, unchecked_flags

        version = facts.tensorflow.version if facts.tensorflow else None
        problems = check_flags(value, version)
        if problems:
            return Forecast(Status.NO_EFFECT, f"XLA aborts the process when it reads them: {_sentence(problems)}.")
        if config.get("xla.jit") == "off":
            return Forecast(
                Status.NO_EFFECT,
                "xla.jit: off compiles nothing of the model, so the flags are read only if something else is compiled.",
                self.condition,
            )
        forecast = super().forecast(value, facts, config)
        unchecked = unchecked_flags(value, version)
        message = f"{forecast.message} {unchecked}." if unchecked else forecast.message
        return Forecast(forecast.status, message, forecast.condition)

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        del facts, config
        return f"{' '.join(value)} is added to XLA_FLAGS; flags that are there already stay."

    def apply(self, value: Any, context: Context) -> None:
        from tfvolta.knobs.xla_flags import merge_flags

        former = context.environ.get(VARIABLE)
        context.saved.setdefault(self.name, {VARIABLE: former})
        context.environ[VARIABLE] = merge_flags(former or "", value)[0]

    def verify(self, value: Any, context: Context) -> Outcome:
        present = context.environ.get(VARIABLE, "")
        observed = {"environment": {VARIABLE: present}}
        if not _holds(present, value):
            return Outcome(
                Status.NO_EFFECT,
                f"XLA_FLAGS is not what tfvolta made it, and lacks {' '.join(value)} or a part of it.",
                observed,
            )
        if self.name not in context.saved and _holds(initial_environment().get(VARIABLE, ""), value):
            return Outcome(Status.APPLIED, "Was in the environment when the process started.", observed)
        return Outcome(Status.UNVERIFIABLE, self.unverifiable, observed)


def _holds(text: str, flags: list[str]) -> bool:
    """Whether a text of XLA_FLAGS holds every flag with its value: joining them to it would change nothing."""
    from tfvolta.knobs.xla_flags import merge_flags

    merged, conflicts = merge_flags(text, flags)
    return not conflicts and merged.strip() == text.strip()


def _sentence(problems: list[Problem]) -> str:
    return "; ".join(f"{problem.received} ({problem.why})" if problem.why else problem.received for problem in problems)
