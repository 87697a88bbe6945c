"""The user's environment against the config: reported, and told apart from what tfvolta set itself."""

from __future__ import annotations

import json

import pytest

from tests.pure.machines import machine
from tfvolta.config import load_config
from tfvolta.contradictions import JOURNAL, journal, note, user_environment
from tfvolta.errors import PlanError
from tfvolta.plan import make_plan


def test_journal_survives_only_unchanged_values() -> None:
    environ = {"A": "user"}
    for name, value in (("B", "1"), ("C", "2")):
        environ[name] = value
        note(environ, name, value)
    assert journal(environ) == {"B": "1", "C": "2"}
    environ["C"] = "changed by the user"
    assert user_environment(environ) == {"A": "user", "C": "changed by the user"}
    note(environ, "B", None)
    assert journal(environ) == {"C": "2"}


@pytest.mark.parametrize("text", ["", "not json", "[1]", '"text"'])
def test_a_broken_journal_claims_nothing(text: str) -> None:
    assert journal({JOURNAL: text}) == {}


CASES = [
    ({"devices": {"memory_growth": True}}, {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, "TF_FORCE_GPU_ALLOW_GROWTH"),
    ({"devices": {"allocator": "cuda_malloc_async"}}, {"TF_GPU_ALLOCATOR": "bfc"}, "TF_GPU_ALLOCATOR"),
    ({"devices": {"gpu_thread_mode": "gpu_private"}}, {"TF_GPU_THREAD_MODE": "global"}, "TF_GPU_THREAD_MODE"),
    ({"devices": {"inter_op_threads": 2}}, {"TF_NUM_INTEROP_THREADS": "8"}, "TF_NUM_INTEROP_THREADS"),
    (
        {"cudnn": {"workspace_limit_mb": 512}},
        {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "64"},
        "TF_CUDNN_WORKSPACE_LIMIT_IN_MB",
    ),
    ({"cudnn": {"autotune": True}}, {"TF_CUDNN_USE_AUTOTUNE": "0"}, "TF_CUDNN_USE_AUTOTUNE"),
    ({"nccl": {"algorithm": "Tree"}}, {"NCCL_ALGO": "Ring"}, "NCCL_ALGO"),
    ({"debug": {"launch_blocking": False}}, {"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING"),
    ({"debug": {"deterministic": False}}, {"TF_DETERMINISTIC_OPS": "1"}, "TF_DETERMINISTIC_OPS"),
    ({"devices": {"visible": [0, 1]}}, {"CUDA_VISIBLE_DEVICES": "3"}, "CUDA_VISIBLE_DEVICES"),
    ({"xla": {"jit": "off"}}, {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}, "TF_XLA_FLAGS"),
    ({"xla": {"jit": "off"}}, {"KERAS_BACKEND": "jax"}, "KERAS_BACKEND"),
    ({"xla": {"flags": ["--xla_gpu_autotune_level=2"]}}, {"XLA_FLAGS": "--xla_gpu_autotune_level=4"}, "XLA_FLAGS"),
]


@pytest.mark.parametrize(("sections", "environ", "variable"), CASES, ids=[case[2] for case in CASES])
def test_each_contradiction_is_reported_and_refused_when_strict(sections, environ, variable) -> None:
    config = load_config(**sections)
    plan = make_plan(config, machine("dgx1", stack="keras3"), environ)
    found = [problem for problem in plan.contradictions if variable in problem.where]
    assert len(found) == 1, plan.contradictions
    assert found[0].fix and environ[variable] in found[0].received
    with pytest.raises(PlanError, match=variable):
        plan.check()
    lenient = make_plan(load_config(run={"strict": False}, **sections), machine("dgx1", stack="keras3"), environ)
    lenient.check()
    assert [problem.where for problem in lenient.contradictions] == [problem.where for problem in plan.contradictions]


@pytest.mark.parametrize(("sections", "environ", "variable"), CASES, ids=[case[2] for case in CASES])
def test_no_contradiction_without_the_variable(sections, environ, variable) -> None:
    assert make_plan(load_config(**sections), machine("dgx1"), {}).contradictions == ()


@pytest.mark.parametrize("text", ["true", "1", "True"])
def test_the_same_said_in_other_words_is_no_contradiction(text: str) -> None:
    config = load_config(devices={"memory_growth": True})
    assert make_plan(config, machine("dgx1"), {"TF_FORCE_GPU_ALLOW_GROWTH": text}).contradictions == ()


def test_what_tfvolta_set_is_not_the_users() -> None:
    environ = {"TF_GPU_THREAD_MODE": "global"}
    note(environ, "TF_GPU_THREAD_MODE", "global")
    config = load_config(devices={"gpu_thread_mode": "gpu_private"})
    assert make_plan(config, machine("dgx1"), environ).contradictions == ()


_TWO = {"cluster": {"worker": ["127.0.0.1:1111", "127.0.0.1:2222"]}, "task": {"type": "worker", "index": 0}}


@pytest.mark.parametrize(
    ("text", "called", "said"),
    [
        ("{bad", frozenset(), "no JSON"),
        ("{}", frozenset(), "an object with cluster and task"),
        (json.dumps(_TWO), frozenset({"fit", "Dense"}), "env -u TF_CONFIG"),
        (json.dumps(_TWO), frozenset({"fit", "MultiWorkerMirroredStrategy", "scope"}), ""),
        (json.dumps(_TWO), frozenset({"fit", "init"}), ""),
        (json.dumps(_TWO), frozenset({"main"}), ""),
    ],
)
def test_a_leftover_tf_config_is_refused_before_the_script_starts(text: str, called: frozenset[str], said: str) -> None:
    plan = make_plan(load_config("tfvolta:default"), machine("v100_16gb"), {"TF_CONFIG": text}, called)
    found = [str(problem) for problem in plan.contradictions]
    assert len(found) == bool(said) and all(said in each and "TF_CONFIG" in each for each in found)
    if said:
        with pytest.raises(PlanError, match="TF_CONFIG"):
            plan.check()
