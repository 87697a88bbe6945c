"""What the plan knows beforehand: combinations that it refuses, or of which it says that they change nothing here."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from typing import Any, Mapping, Optional, Sequence

from tfvolta.config import load_config
from tfvolta.config.schema import Config
from tfvolta.errors import Problem, TfvoltaError
from tfvolta.facts.schema import Facts
from tfvolta.knobs.jit_decision import decide_jit, planned_situation
from tfvolta.outcome import Status
from tfvolta.plan import Plan, make_plan
from tfvolta.tune.candidates import TIMES, Words
from tfvolta.tune.model_traits import ModelTraits
from tfvolta.tune.space import Axis, Ruling, Space

_STOOD_FOR = {"off": False, "model": True}


@dataclasses.dataclass(frozen=True)
class PlanRules:
    """Asks the plan about combinations of settings.

    Attributes:
        config: The user's config file or template.
        overrides: What is given with it.
        facts: The machine and stack.
        environ: The environment of trials.
        script_layers: Names of layers in the script's source.
    """

    config: Optional[str]
    overrides: Words
    facts: Facts
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    script_layers: frozenset[str] = frozenset()

    def load(self, words: Sequence[str] = ()) -> Config:
        """The config with some settings changed."""
        return load_config(self.config or "tfvolta:default", overrides=[*self.overrides, *words])

    def plan(self, words: Sequence[str] = ()) -> Plan:
        """Its plan."""
        return make_plan(self.load(words), self.facts, self.environ, self.script_layers)

    def ruling(self, words: Words) -> Optional[Ruling]:
        """Why these settings are not worth a trial; None where they may be."""
        words = tuple(word for word in words if not word.startswith(f"fit.batch_size={TIMES}"))
        if not words:
            return None
        try:
            plan = self.plan(words)
        except TfvoltaError as error:
            return Ruling("conflict", _said(error.problems[0]) if error.problems else error.summary)
        for kind, problems in (("conflict", plan.conflicts), ("contradiction", plan.contradictions)):
            own = [problem for problem in problems if _said(problem) not in self._own_problems]
            if own:
                return Ruling(kind, _said(own[0]))  # type: ignore[arg-type]
        return _idle(plan, words)

    @functools.cached_property
    def _own_problems(self) -> frozenset[str]:
        """What the user's own config has against it already."""
        plan = self.plan()
        return frozenset(_said(problem) for problem in (*plan.conflicts, *plan.contradictions))

    def apply(self, space: Space) -> None:
        """Rules out what the plan knows of single settings and of pairs."""
        numbers = range(len(space.axes))
        single = [(axis, option) for axis in numbers for option in range(1, len(space.axes[axis].options))]
        left = []
        for axis, option in single:
            ruling = self.ruling(space.axes[axis].options[option]) or self._same(space.axes[axis], option)
            if ruling is None:
                left.append((axis, option))
            else:
                space.rule_out({axis: option}, ruling)
        for (first, one), (second, other) in itertools.combinations(left, 2):
            if first != second:
                ruling = self.ruling(space.axes[first].options[one] + space.axes[second].options[other])
                if ruling is not None:
                    space.rule_out({first: one, second: other}, ruling)

    def _same(self, axis: Axis, option: int) -> Optional[Ruling]:
        """Whether ``xla.jit: auto`` decides the same without having seen the model: that it leaves XLA off."""
        if axis.key != "xla.jit":
            return None
        config = self.load()
        decision = decide_jit("auto", planned_situation(self.facts, config))
        asked = axis.options[option][0].partition("=")[2]
        if config.get("xla.jit") == "auto" and not decision.on and asked == "off":
            return Ruling("same", "xla.jit: auto leaves XLA off here, as off does")
        return None


def rule_by_traits(space: Space, traits: ModelTraits) -> None:
    """Rules out what is idle with the model that the first trial has shown, or the same as what it had."""
    for number, axis in enumerate(space.axes):
        why = axis.candidate.lacks(traits) if axis.candidate is not None and axis.candidate.lacks else None
        if axis.key == "fit.batch_size" and traits.batch is None:
            why = "the data do not say their batch"
        for option in range(1, len(axis.options)):
            word = axis.options[option][0]
            if why is not None:
                space.rule_out({number: option}, Ruling("not_applicable", f"{axis.key}: {why}"))
            elif axis.key == "xla.jit" and traits.compiled is not None:
                if _STOOD_FOR.get(word.partition("=")[2]) is traits.compiled:
                    did = "compiled" if traits.compiled else "not compiled"
                    space.rule_out({number: option}, Ruling("same", f"{word}: the step is {did} as it is"))
            elif word == f"fit.steps_per_execution={traits.batches_per_call}":
                space.rule_out({number: option}, Ruling("same", f"{word}: the script has it already"))


def _idle(plan: Plan, words: Words) -> Optional[Ruling]:
    """Whether a knob of these settings says that it does nothing here."""
    keys = {word.partition("=")[0] for word in words}
    for step in plan.steps:
        if keys & set(step.knob.keys):
            forecast = step.forecast
            key = sorted(keys & set(step.knob.keys))[0]
            if forecast.status is Status.NOT_APPLICABLE and not step.knob.asks_tensorflow:
                return Ruling("not_applicable", f"{key}: {forecast.message}")
            if forecast.status is Status.NO_EFFECT and not forecast.condition:
                return Ruling("no_effect", f"{key}: {forecast.message}")
    return None


def _said(problem: Problem) -> str:
    key = problem.where.rpartition(": ")[2]
    return f"{key}: {problem.why or problem.expected}"


def resolved(words: Words, traits: Mapping[str, Any]) -> Words:
    """Words in which multiples of the script's batch are numbers."""
    found = []
    for word in words:
        key, _, value = word.partition("=")
        batch = traits.get("batch")
        if key == "fit.batch_size" and value.startswith(TIMES) and batch:
            word = f"{key}={int(batch) * int(value[len(TIMES) :])}"
        found.append(word)
    return tuple(found)
