"""Config and facts make a plan: which knob gets which value, in which phase, and what will happen."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from tfvolta.config.schema import Config
from tfvolta.conflicts import Request, find_conflicts
from tfvolta.contradictions import find_contradictions
from tfvolta.errors import PlanError, Problem
from tfvolta.facts.schema import Facts
from tfvolta.knobs.base import Forecast, Knob
from tfvolta.knobs.registry import knobs_for
from tfvolta.knobs.removal import in_words, removal
from tfvolta.knobs.xla_rules import recurrent_layers
from tfvolta.outcome import Status
from tfvolta.strategy.knobs import STRATEGY_KNOBS


@dataclasses.dataclass(frozen=True)
class Step:
    """One knob with the value it will get.

    Attributes:
        knob: The knob.
        value: What the config asks for.
        origin: Where the value came from, such as ``configs/a.yaml:7``.
        forecast: What will happen on this machine and stack.
    """

    knob: Knob
    value: Any
    origin: str
    forecast: Forecast

    def to_json(self) -> dict[str, Any]:
        """The step as JSON values, as it stands in evidence."""
        return {
            "knob": self.knob.name,
            "keys": list(self.knob.keys),
            "phase": self.knob.phase.label,
            "value": _plain(self.value),
            "origin": self.origin,
            "status": self.forecast.status.value,
            "message": self.forecast.message,
            "condition": self.forecast.condition,
            "techniques": list(self.knob.techniques),
        }


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a config means on a machine, in the order in which it will be done.

    Attributes:
        steps: Ordered by phase.
        conflicts: What cannot work; a plan with conflicts is refused.
        contradictions: Where the environment says otherwise; refused under a strict config.
    """

    config: Config
    facts: Facts
    steps: tuple[Step, ...]
    conflicts: tuple[Problem, ...]
    contradictions: tuple[Problem, ...]

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """Everything for which this plan is refused under its config's strictness."""
        if not self.config.run.strict:
            return self.conflicts
        return (
            self.conflicts
            + self.contradictions
            + tuple(_idle(step, self.config) for step in self.steps if _is_idle(step))
        )

    def check(self) -> None:
        """Refuses a plan that cannot work.

        Raises:
            PlanError: With every conflict, and every contradiction where the config is strict.
        """
        if self.refusals:
            count = len(self.refusals)
            raise PlanError(f"This config cannot be applied here: {count} problem{'s' * (count > 1)}.", self.refusals)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values, as ``tfvolta plan --json`` prints it."""
        return {
            "stack": self.facts.stack,
            "steps": [step.to_json() for step in self.steps],
            "conflicts": [dataclasses.asdict(problem) for problem in self.conflicts],
            "contradictions": [dataclasses.asdict(problem) for problem in self.contradictions],
        }


def _is_idle(step: Step) -> bool:
    return step.forecast.status is Status.NO_EFFECT and not step.forecast.condition


def _idle(step: Step, config: Config) -> Problem:
    key = step.knob.keys[0]
    return Problem(
        where=f"{step.origin}: {key}",
        expected="a setting that changes something on this machine and stack",
        received=f"{key}: {in_words(_plain(step.value))}",
        why=step.forecast.message,
        fix=removal(step.knob, config),
    )


def _plain(value: Any) -> Any:
    """A config value as JSON values."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _origin(config: Config, knob: Knob) -> str:
    from tfvolta.config.provenance import origin_of

    given = [key for key in knob.keys if key in config.provenance]
    return str(origin_of(config, given[0] if given else knob.keys[0]))


def _forecast(knob: Knob, value: Any, request: Request) -> Forecast:
    """What a knob foretells, with what the layers in the script's source may make of it."""
    forecast = knob.forecast(value, request.facts, request.config)
    said = recurrent_layers(request) if "xla.jit" in knob.keys else ""
    return dataclasses.replace(forecast, message=f"{forecast.message} {said}") if said else forecast


def _asked_for(config: Config) -> list[tuple[Knob, Any]]:
    """Every knob that the config asks for, those of the strategy among them, in the order of their phases."""
    strategy = [(knob, knob.value(config)) for knob in STRATEGY_KNOBS]
    asked = [*knobs_for(config), *((knob, value) for knob, value in strategy if value is not None)]
    return sorted(asked, key=lambda pair: pair[0].phase)


def make_plan(
    config: Config, facts: Facts, environ: Mapping[str, str], script_layers: frozenset[str] = frozenset()
) -> Plan:
    """Works out what a config will do on a machine. Needs no TensorFlow and changes nothing.

    Args:
        config: What is asked for.
        facts: The machine and stack, live or recorded.
        environ: The environment that the training process will start with.
        script_layers: Names of Keras layers that the script's source constructs, where a script is known.

    Returns:
        The plan, with its conflicts and contradictions; ``Plan.check`` raises them.
    """
    request = Request(config, facts, environ, script_layers)
    steps = tuple(
        Step(knob, value, _origin(config, knob), _forecast(knob, value, request)) for knob, value in _asked_for(config)
    )
    own = [
        dataclasses.replace(problem, where=problem.where or f"{step.origin}: {step.knob.keys[0]}")
        for step in steps
        for problem in step.knob.problems(step.value, facts, environ)
    ]
    return Plan(
        config=config,
        facts=facts,
        steps=steps,
        conflicts=tuple(find_conflicts(request) + own),
        contradictions=tuple(find_contradictions(request, [(step.knob, step.value) for step in steps])),
    )
