"""What is searched on which machine: knobs say what changes results, and the plan says what costs no trial."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import pytest

import tfvolta
from tests.pure.recorded_context import H200, V100, machine
from tests.pure.test_knobs_registry import schema_keys
from tfvolta.config import load_config
from tfvolta.facts.schema import Facts
from tfvolta.knobs.registry import knob
from tfvolta.tune.candidates import CANDIDATES, Situation, carriers, changes_results, groups
from tfvolta.tune.expectation import RULES, Surroundings, expected
from tfvolta.tune.model_traits import ModelTraits
from tfvolta.tune.plan_rules import PlanRules, resolved, rule_by_traits
from tfvolta.tune.space import Axis, Ruling, Space, axes_for

RECORDED = sorted((pathlib.Path(tfvolta.__file__).parent / "facts" / "recorded").glob("*.json"))
MIRRORED = ("strategy.kind=mirrored",)


def facts_of(path: pathlib.Path) -> Facts:
    return Facts.model_validate_json(path.read_text(encoding="utf-8"))


def cpu_only() -> Facts:
    return machine(H200).model_copy(update={"gpus": (), "links": (), "tensorflow": None})


def ruled(facts: Facts, *overrides: str, allowed: Any = ()) -> Space:
    """The space of a config on a machine, after the plan's rules."""
    rules = PlanRules(None, overrides, facts, {})
    space = Space(axes_for(Situation(rules.load(), facts), allowed))
    rules.apply(space)
    return space


@pytest.mark.parametrize("each", CANDIDATES, ids=lambda each: each.key)
def test_every_candidate_is_a_key_that_a_knob_carries(each: Any) -> None:
    assert each.key in set(schema_keys())
    assert carriers(each.key)
    situation = Situation(load_config(overrides=MIRRORED), machine(H200, 2))
    for words in each.values(situation):
        if not words[0].endswith(("x2", "x4")):
            load_config(overrides=list(words))


@pytest.mark.parametrize("each", CANDIDATES, ids=lambda each: each.key)
def test_a_candidate_has_a_group_exactly_where_its_knob_says_that_results_change(each: Any) -> None:
    situation = Situation(load_config(overrides=MIRRORED), machine(H200, 2))
    values = [*each.values(situation), *each.values(Situation(load_config(), cpu_only()))]
    assert values
    assert {changes_results(words) for words in values} == {bool(each.group)}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("overrides", [(), MIRRORED], ids=["default", "mirrored"])
def test_without_leave_nothing_is_searched_by_which_results_change(path: pathlib.Path, overrides: Any) -> None:
    facts = facts_of(path)
    for axis in axes_for(Situation(load_config(overrides=overrides), facts)):
        for words in axis.options:
            for word in words:
                key = word.partition("=")[0]
                assert not any(each.changes_results_by(key) for each in carriers(key)), word


def test_it_is_the_knob_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = Situation(load_config(), machine(H200))
    assert "xla.jit" in {axis.key for axis in axes_for(situation)}
    monkeypatch.setattr(type(knob("jit")), "changes_results", True)
    assert "xla.jit" not in {axis.key for axis in axes_for(situation)}


def test_a_knob_may_change_results_by_one_of_its_keys_alone() -> None:
    options = knob("input_options")
    assert options.changes_results_by("input.deterministic") and not options.changes_results_by("input.private_threads")


def test_leave_is_given_by_groups() -> None:
    situation = Situation(load_config(), machine(H200))
    plain = {axis.key for axis in axes_for(situation)}
    more = {axis.key for axis in axes_for(situation, ("batch", "input_order"))}
    assert more - plain == {"fit.batch_size", "input.deterministic"}
    assert set(groups()) == {"precision", "batch", "reduce_every", "compression", "input_order"}


def test_what_the_config_has_is_no_option_beside_itself() -> None:
    config = load_config(overrides=["xla.jit=model", "kernels=null"])
    axes = {axis.key: axis.labels for axis in axes_for(Situation(config, machine(H200)))}
    assert axes["xla.jit"] == ["as given", "xla.jit=off", "xla.jit=clustering"]
    assert axes["kernels.fused_batch_norm"] == ["as given", "kernels.fused_batch_norm=on"]  # off is what absence means


def test_rules_of_the_plan_cost_no_trial_and_are_counted() -> None:
    space = ruled(cpu_only())
    kinds = {each.kind for each in space.pruned}
    assert kinds == {"not_applicable", "same"}
    assert sum(each.combinations for each in space.pruned) == space.combinations - len(space.points())
    rules = " ".join(each.rule for each in space.pruned)
    assert "graph.layout_optimizer" in rules and "xla.jit: auto leaves XLA off here" in rules


def test_settings_that_exclude_each_other_are_ruled_out_in_pairs() -> None:
    space = ruled(machine(V100).model_copy(update={"tensorflow": None}), allowed=("precision",))
    said = {each.kind: each for each in space.pruned if "layouts itself" in each.rule}
    assert said["conflict"].example == {"xla.jit": "model", "graph.layout_optimizer": "false"}
    assert any("Tensor Cores take float16 only" in each.rule for each in space.pruned)
    for point in space.points():
        settings = space.settings(tuple(point))
        assert not (settings.get("xla.jit") == "model" and "graph.layout_optimizer" in settings)


def test_what_the_users_own_config_has_against_it_is_no_reason_against_a_setting() -> None:
    facts = machine(H200).model_copy(update={"tensorflow": None})
    rules = PlanRules(None, ("run.strict=false", "debug.deterministic=true", "cudnn.autotune=true"), facts, {})
    assert rules.plan().conflicts
    assert rules.ruling(("fit.steps_per_execution=10",)) is None


def test_traits_rule_out_what_is_idle_with_the_model() -> None:
    space = ruled(machine(H200).model_copy(update={"tensorflow": None}))
    traits = ModelTraits(
        kinds={"Dense": 1}, batch=32, step_seconds=0.1, data_seconds=0.001, compiled=True, batches_per_call=10
    )
    rule_by_traits(space, traits)
    left = {word for point in space.points() for word in space.words(tuple(point))}
    assert not any(word.startswith(("kernels.", "graph.", "input.cache", "input.prefetch")) for word in left)
    assert "xla.jit=model" not in left and "xla.jit=off" in left
    assert "fit.steps_per_execution=10" not in left and "fit.steps_per_execution=32" in left


def test_the_users_own_config_cannot_be_ruled_out() -> None:
    space = Space([Axis("a", ((), ("a=1",)))])
    with pytest.raises(ValueError, match="own config"):
        space.rule_out({0: 0}, Ruling("same", "as it is"))
    assert space.rule_out({0: 1}, Ruling("failed", "x")) == 1 and space.rule_out({0: 1}, Ruling("failed", "y")) == 0
    assert space.points().tolist() == [[0]] and space.left == 1


def test_multiples_of_the_scripts_batch_are_resolved() -> None:
    assert resolved(("fit.batch_size=x4", "xla.jit=off"), {"batch": 48}) == ("fit.batch_size=192", "xla.jit=off")


def test_a_batch_that_is_not_known_cannot_be_doubled() -> None:
    space = ruled(cpu_only(), allowed=("batch",))
    rule_by_traits(space, ModelTraits(kinds={"Dense": 1}))
    assert not any("fit.batch_size" in space.settings(tuple(point)) for point in space.points())


def test_every_expectation_is_of_a_candidate_and_finite() -> None:
    keys = {each.key for each in CANDIDATES}
    assert set(RULES) <= keys
    config = load_config(overrides=MIRRORED)
    for facts in (machine(V100, 8), cpu_only(), machine(H200).model_copy(update={"stack": "tf_keras"})):
        for kinds in ({"Conv2D": 3, "BatchNormalization": 3}, {"LSTM": 2}, {"MultiHeadAttention": 12}, {}):
            traits = ModelTraits(kinds=kinds, batch=32, step_seconds=0.004, data_seconds=0.003)
            for compiled in (False, True):
                here = Surroundings(facts, traits, compiled, compiled)
                for each in CANDIDATES:
                    for words in each.values(Situation(config, facts)):
                        what = expected(each.key, words[0].partition("=")[2], here)
                        assert abs(what.gain) < math.log(10) and 0 < what.doubt < 1 and what.why
