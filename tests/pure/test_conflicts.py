"""What cannot work is refused at plan time, with the reason and the fix; its neighbours that can work are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pure.machines import machine
from tfvolta.config import load_config
from tfvolta.errors import PlanError
from tfvolta.plan import make_plan

# name: sections, machine, stack, layers in the script, word in the reason, key in the place
REFUSED: dict[str, tuple[dict[str, Any], str, str, set[str], str, str]] = {
    "growth_with_limit": (
        {"devices": {"memory_growth": True, "memory_limit_mb": 4096}},
        "v100_16gb",
        "keras3",
        set(),
        "logical device",
        "devices.memory_growth",
    ),
    "growth_with_async_allocator": (
        {"devices": {"memory_growth": True, "allocator": "cuda_malloc_async"}},
        "dgx1",
        "keras2",
        set(),
        "BFC",
        "devices.memory_growth",
    ),
    "threads_without_mode": (
        {"devices": {"gpu_threads": 2}},
        "v100_16gb",
        "keras3",
        set(),
        "two modes",
        "devices.gpu_threads",
    ),
    "threads_with_global_mode": (
        {"devices": {"gpu_threads": 2, "gpu_thread_mode": "global"}},
        "v100_16gb",
        "keras3",
        set(),
        "two modes",
        "devices.gpu_threads",
    ),
    "tf32_on_volta": (
        {"math": {"tf32": True}},
        "v100_16gb",
        "keras3",
        set(),
        "TF32: not available on this GPU",
        "math.tf32",
    ),
    "tf32_on_dgx2": (
        {"math": {"tf32": True}},
        "dgx2",
        "tf_keras",
        set(),
        "TF32: not available on this GPU",
        "math.tf32",
    ),
    "bfloat16_on_volta": (
        {"mixed_precision": {"policy": "mixed_bfloat16"}},
        "dgx1",
        "keras2",
        set(),
        "float16 only",
        "mixed_precision.policy",
    ),
    "loss_scale_without_float16": (
        {"mixed_precision": {"policy": "float32", "loss_scale": {"initial": 64.0}}},
        "cpu",
        "keras3",
        set(),
        "exponent range",
        "mixed_precision.loss_scale.initial",
    ),
    "fixed_and_dynamic": (
        {"mixed_precision": {"policy": "mixed_float16", "loss_scale": {"fixed": 64.0, "initial": 8.0}}},
        "cpu",
        "keras3",
        set(),
        "first value",
        "mixed_precision.loss_scale.fixed",
    ),
    "determinism_with_keras3_jit": (
        {"debug": {"deterministic": True}, "xla": {"jit": "model"}},
        "v100_16gb",
        "keras3",
        set(),
        "deterministic",
        "xla.jit",
    ),
    "determinism_with_autotune": (
        {"debug": {"deterministic": True}, "cudnn": {"autotune": True}},
        "v100_16gb",
        "keras2",
        set(),
        "timing",
        "cudnn.autotune",
    ),
    "workspace_with_jit": (
        {"cudnn": {"workspace_limit_mb": 512}, "xla": {"jit": "model"}},
        "v100_16gb",
        "keras3",
        set(),
        "XLA",
        "cudnn.workspace_limit_mb",
    ),
    "layout_with_jit": (
        {"graph": {"layout_optimizer": True}, "xla": {"jit": "model"}},
        "h200_x2",
        "keras3",
        set(),
        "layouts",
        "graph.layout_optimizer",
    ),
    "visible_beyond_the_machine": (
        {"devices": {"visible": [0, 9]}},
        "dgx1",
        "keras2",
        set(),
        "no GPU 9",
        "devices.visible",
    ),
    "visible_on_a_machine_without_gpu": (
        {"devices": {"visible": [0]}},
        "cpu",
        "keras3",
        set(),
        "no GPU 0",
        "devices.visible",
    ),
    "visible_twice": ({"devices": {"visible": [1, 1]}}, "dgx1", "keras2", set(), "", "devices.visible"),
    "unknown_xla_flag": (
        {"xla": {"flags": ["--xla_gpu_autotune_levle=4"]}},
        "v100_16gb",
        "keras3",
        set(),
        "",
        "xla.flags",
    ),
    "num_packs_on_multi_worker": (
        {"strategy": {"kind": "multi_worker_mirrored"}, "communication": {"num_packs": 2}},
        "dgx1",
        "keras2",
        set(),
        "",
        "communication.num_packs",
    ),
}


def _plan(case: tuple[dict[str, Any], str, str, set[str], str, str], strict: bool = True):
    sections, name, stack, layers, _, _ = case
    config = load_config(run={"strict": strict}, **sections)
    return make_plan(config, machine(name, stack=stack), {}, frozenset(layers))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_reason_and_fix(name: str) -> None:
    *_, word, key = REFUSED[name]
    plan = _plan(REFUSED[name])
    found = [problem for problem in plan.conflicts if key in problem.where]
    assert found, [str(problem) for problem in plan.conflicts]
    assert all(problem.expected and problem.received and problem.fix for problem in found)
    assert any(word in str(problem) for problem in found), [str(problem) for problem in found]
    with pytest.raises(PlanError):
        plan.check()


@pytest.mark.parametrize("name", REFUSED)
def test_leniency_does_not_let_a_conflict_through(name: str) -> None:
    with pytest.raises(PlanError):
        _plan(REFUSED[name], strict=False).check()


ACCEPTED: dict[str, tuple[dict[str, Any], str, str, set[str]]] = {
    "growth_alone": ({"devices": {"memory_growth": True}}, "v100_16gb", "keras3", set()),
    "limit_alone": ({"devices": {"memory_limit_mb": 4096}}, "v100_16gb", "keras3", set()),
    "threads_with_private_mode": (
        {"devices": {"gpu_threads": 2, "gpu_thread_mode": "gpu_private"}},
        "v100_16gb",
        "keras3",
        set(),
    ),
    "tf32_on_hopper": ({"math": {"tf32": True}}, "h200_x2", "keras3", set()),
    "tf32_off_on_volta": ({"math": {"tf32": False}}, "v100_16gb", "keras3", set()),
    "bfloat16_on_hopper": ({"mixed_precision": {"policy": "mixed_bfloat16"}}, "h200_x2", "keras3", set()),
    "bfloat16_on_volta_by_override": (
        {"mixed_precision": {"policy": "mixed_bfloat16", "allow_bfloat16_emulation": True}},
        "dgx1",
        "keras2",
        set(),
    ),
    "fixed_scale_alone": (
        {"mixed_precision": {"policy": "mixed_float16", "loss_scale": {"fixed": 64.0}}},
        "cpu",
        "keras3",
        set(),
    ),
    "determinism_with_auto": ({"debug": {"deterministic": True}, "xla": {"jit": "auto"}}, "v100_16gb", "keras3", set()),
    "workspace_with_auto": (
        {"cudnn": {"workspace_limit_mb": 512}, "xla": {"jit": "auto"}},
        "v100_16gb",
        "keras3",
        set(),
    ),
    "lstm_among_others_with_jit": ({"xla": {"jit": "model"}}, "h200_x2", "keras3", {"LSTM", "Conv2D"}),
    "gru_with_jit_keras2": ({"xla": {"jit": "model"}}, "v100_16gb", "keras2", {"GRU"}),
    "lstm_with_auto": ({"xla": {"jit": "auto"}}, "v100_16gb", "keras3", {"LSTM"}),
    "some_visible": ({"devices": {"visible": [2, 3]}}, "dgx1", "keras2", set()),
    "nothing_visible": ({"devices": {"visible": []}}, "dgx1", "keras2", set()),
    "known_xla_flag": ({"xla": {"flags": ["--xla_gpu_autotune_level=4"]}}, "v100_16gb", "keras3", set()),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_neighbours_that_can_work_are_accepted(name: str) -> None:
    sections, machine_name, stack, layers = ACCEPTED[name]
    plan = make_plan(load_config(**sections), machine(machine_name, stack=stack), {}, frozenset(layers))
    assert plan.refusals == (), [str(problem) for problem in plan.refusals]


@pytest.mark.parametrize(
    ("stack", "layers", "words"),
    [
        ("keras3", {"LSTM", "Conv2D"}, ("names LSTM", "cuDNN's recurrent kernel", "NO_EFFECT")),
        ("keras2", {"GRU", "LSTM"}, ("names GRU, LSTM", "110 seconds")),
        ("keras3", {"Conv2D"}, ()),
    ],
)
def test_recurrent_layers_in_a_source_are_told_and_not_refused(
    stack: str, layers: set[str], words: tuple[str, ...]
) -> None:
    """Which of a source's models is trained is not known yet."""
    for jit in ("model", "auto"):
        plan = make_plan(load_config(xla={"jit": jit}), machine("v100_16gb", stack=stack), {}, frozenset(layers))
        (message,) = [step.forecast.message for step in plan.steps if "xla.jit" in step.knob.keys]
        assert plan.refusals == ()
        assert all((word in message) is (jit == "model") for word in words)
        assert ("The script names" in message) is (jit == "model" and bool(words))


def test_all_conflicts_are_reported_at_once() -> None:
    config = load_config(
        devices={"memory_growth": True, "memory_limit_mb": 1024, "gpu_threads": 2},
        math={"tf32": True},
        mixed_precision={"policy": "mixed_bfloat16"},
    )
    plan = make_plan(config, machine("dgx1"), {})
    places = " ".join(problem.where for problem in plan.conflicts)
    for key in ("devices.memory_growth", "devices.gpu_threads", "math.tf32", "mixed_precision.policy"):
        assert key in places


def test_steps_come_in_the_order_of_their_phases_with_their_origin() -> None:
    config = load_config(
        None,
        ["devices.memory_growth=true", "cudnn.workspace_limit_mb=512"],
        fit={"steps_per_execution": 4},
        mixed_precision={"policy": "mixed_float16"},
    )
    plan = make_plan(config, machine("v100_16gb"), {})
    phases = [step.knob.phase for step in plan.steps]
    assert phases == sorted(phases)
    origins = {step.knob.keys[0]: step.origin for step in plan.steps}
    assert "override" in origins["cudnn.workspace_limit_mb"]
    assert "argument" in origins["fit.steps_per_execution"]
    assert all(step.forecast.message for step in plan.steps)
