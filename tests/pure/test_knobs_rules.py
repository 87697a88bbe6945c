"""What single knobs know: the rules that are not common to all of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.pure.recorded_context import H200, V100, RecordedContext, RecordedModel, connect_privates, layer, machine
from tfvolta.bridge.base import RefusedLayer
from tfvolta.config.schema import Config
from tfvolta.errors import PlanError
from tfvolta.facts.schema import Facts
from tfvolta.knobs import environment, nccl
from tfvolta.knobs.gpu_threads import data_threads
from tfvolta.knobs.jit_decision import JitSituation, decide_jit
from tfvolta.knobs.nccl import interface_problem, matching_interfaces
from tfvolta.knobs.precision_groups import products
from tfvolta.knobs.registry import knob
from tfvolta.knobs.retrofit import changes_of
from tfvolta.outcome import Status
from tfvolta.phase import Moment


def context_for(sections: dict[str, Any], facts: Facts, environ: Any = None) -> RecordedContext:
    return RecordedContext(Config.model_validate(sections), facts, environ)


def applied(name: str, context: RecordedContext, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Applies a knob with the value that the context's config asks for, and verifies it."""
    connect_privates(monkeypatch, context)
    value = knob(name).value(context.config)
    knob(name).apply(value, context)
    return knob(name).verify(value, context)


# Threads


def test_the_same_number_of_threads_again_after_the_start_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"inter_op_threads": 3}}, machine())
    context.tensorflow.threads["inter"] = 3
    context.tensorflow.started = True
    assert applied("inter_op_threads", context, monkeypatch).status is Status.APPLIED
    assert context.tensorflow.writes == []


def test_zero_threads_lose_against_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"intra_op_threads": 0}}, machine(), {"TF_NUM_INTRAOP_THREADS": "1"})
    outcome = applied("intra_op_threads", context, monkeypatch)
    assert outcome.status is Status.NO_EFFECT
    assert "TF_NUM_INTRAOP_THREADS=1" in outcome.message


@pytest.mark.parametrize(("cores", "gpus", "left"), [(40, 8, 16), (8, 4, 1), (4, 1, 1), (16, 0, 16)])
def test_threads_left_to_the_input_pipeline(cores: int, gpus: int, left: int) -> None:
    assert data_threads(cores, gpus) == left


def test_thread_mode_is_seen_in_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {"devices": {"gpu_thread_mode": "gpu_private", "gpu_threads": 3}}
    context = context_for(sections, machine(V100, 2))
    applied("gpu_thread_mode", context, monkeypatch)
    assert applied("gpu_threads", context, monkeypatch).status is Status.PENDING
    context.tensorflow.started = True
    assert knob("gpu_threads").verify(3, context).observed == {"threads": 6, "expected": 6}
    assert knob("gpu_thread_mode").verify("gpu_private", context).status is Status.APPLIED
    assert knob("gpu_threads").verify(2, context).status is Status.NO_EFFECT


def test_thread_count_without_a_mode_is_forecast_as_idle() -> None:
    forecast = knob("gpu_threads").forecast(2, machine(V100), Config.model_validate({"devices": {"gpu_threads": 2}}))
    assert forecast.status is Status.NO_EFFECT
    assert "devices.gpu_thread_mode: gpu_private" in forecast.message


# Memory and visible devices


@pytest.mark.parametrize(("forced", "value"), [("true", False), ("false", True)])
def test_the_variable_beats_growth_in_both_directions(
    forced: str, value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_for({"devices": {"memory_growth": value}}, machine(V100), {"TF_FORCE_GPU_ALLOW_GROWTH": forced})
    outcome = applied("memory_growth", context, monkeypatch)
    assert outcome.status is Status.NO_EFFECT
    assert f"TF_FORCE_GPU_ALLOW_GROWTH={forced}" in outcome.message


def test_a_value_that_tensorflow_does_not_read_beats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"memory_growth": True}}, machine(V100), {"TF_FORCE_GPU_ALLOW_GROWTH": "0"})
    assert applied("memory_growth", context, monkeypatch).status is Status.APPLIED


def test_growth_is_set_on_every_visible_gpu_and_on_no_hidden_one(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"memory_growth": True, "visible": [1, 2]}}, machine(V100, 4))
    applied("visible_devices", context, monkeypatch)
    outcome = applied("memory_growth", context, monkeypatch)
    assert list(context.tensorflow.growth.values()) == [None, True, True, None]
    assert list(outcome.observed["growth"]) == ["/physical_device:GPU:1", "/physical_device:GPU:2"]


def test_growth_without_a_gpu_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"memory_growth": True}}, machine())
    assert applied("memory_growth", context, monkeypatch).status is Status.NOT_APPLICABLE
    assert context.tensorflow.writes == []


def test_indices_that_cuda_hides_are_refused_with_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"visible": [2, 3]}}, machine(V100, 2), {"CUDA_VISIBLE_DEVICES": "2,3"})
    with pytest.raises(PlanError) as caught:
        applied("visible_devices", context, monkeypatch)
    assert "CUDA_VISIBLE_DEVICES=2,3" in str(caught.value)
    assert "from 0 to 1" in str(caught.value)


def test_hiding_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"visible": []}}, machine(V100, 2))
    outcome = applied("visible_devices", context, monkeypatch)
    assert outcome.status is Status.APPLIED
    assert context.tensorflow.visible == []


def test_a_limit_above_the_gpu_is_forecast_as_idle() -> None:
    config = Config.model_validate({"devices": {"memory_limit_mb": 20000}})
    forecast = knob("memory_limit").forecast(20000, machine(V100), config)
    assert forecast.status is Status.NO_EFFECT
    assert "16160 MiB" in forecast.message


def test_a_limit_that_the_running_device_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"devices": {"memory_limit_mb": 4096}}, machine(V100))
    applied("memory_limit", context, monkeypatch)
    context.tensorflow.logical[context.tensorflow.gpus[0]][0].memory_limit = 16000
    context.tensorflow.started = True
    assert knob("memory_limit").verify(4096, context).status is Status.NO_EFFECT


# Environment


def test_undo_of_a_variable_that_was_read_already_is_no_undo() -> None:
    context = context_for(
        {"cudnn": {"workspace_limit_mb": 64}}, machine(V100), {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "32"}
    )
    knob("cudnn_workspace").apply(64, context)
    context.passed.add(Moment.KERNEL_EXECUTED)
    assert knob("cudnn_workspace").undo(context) is False
    assert context.environ == {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "32"}


def test_a_variable_from_the_process_start_was_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "64"}
    context = context_for({"cudnn": {"workspace_limit_mb": 64}}, machine(V100), variables)
    assert knob("cudnn_workspace").verify(64, context).status is Status.UNVERIFIABLE
    monkeypatch.setattr(environment, "initial_environment", lambda: variables)
    assert knob("cudnn_workspace").verify(64, context).status is Status.APPLIED


def test_scratch_memory_by_the_size_of_the_card() -> None:
    cards = (V100, 1024), (V100.model_copy(update={"memory_mb": 32_510}), 4096), (H200, 8192)
    for card, limit_mb in cards:
        context = context_for({"cudnn": {"workspace_limit_mb": "auto"}}, machine(card), {})
        each = knob("cudnn_workspace")
        assert each.variables("auto") == {}
        assert f"{limit_mb} MiB" in each.forecast("auto", context.facts, context.config).message
        each.apply("auto", context)
        assert context.environ == {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": str(limit_mb)}
        assert each.verify("auto", context).status is Status.UNVERIFIABLE
        context.environ["TF_CUDNN_WORKSPACE_LIMIT_IN_MB"] = "7"
        assert each.verify("auto", context).status is Status.NO_EFFECT
    without = context_for({"cudnn": {"workspace_limit_mb": "auto"}}, machine(), {})
    knob("cudnn_workspace").apply("auto", without)
    assert without.environ == {}
    assert knob("cudnn_workspace").verify("auto", without).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("name", ["cudnn_workspace", "cudnn_autotune"])
def test_cudnn_settings_do_not_reach_a_step_that_xla_compiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {"cudnn": {"workspace_limit_mb": 64, "autotune": False}, "xla": {"jit": "model"}}
    context = context_for(sections, machine(V100))
    value = knob(name).value(context.config)
    assert knob(name).forecast(value, context.facts, context.config).status is Status.NO_EFFECT
    context.model = RecordedModel()
    assert applied(name, context, monkeypatch).status is Status.UNVERIFIABLE
    context.model.jit, context.model.traced = True, True
    assert knob(name).verify(value, context).status is Status.NO_EFFECT
    context.model.jit = False
    assert knob(name).verify(value, context).status is Status.UNVERIFIABLE
    context.model.layers = {"head": layer("Dense")}
    assert "no convolution" in knob(name).verify(value, context).message


def test_the_default_allocator_contradicts_the_variable() -> None:
    environ = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    (problem,) = knob("allocator").problems("default", machine(V100), environ)
    assert "unset TF_GPU_ALLOCATOR" in problem.fix
    assert knob("allocator").problems("default", machine(V100), {}) == []
    assert knob("allocator").problems("cuda_malloc_async", machine(V100), environ) == []


def test_launch_blocking_says_what_it_costs() -> None:
    config = Config.model_validate({"debug": {"launch_blocking": True}})
    message = knob("launch_blocking").forecast(True, machine(V100), config).message
    assert "-15.5 %" in message
    assert "NVIDIA H200" in message
    assert "no V100 was available" in message


def test_xla_flags_join_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    users = "--xla_gpu_cuda_data_dir=/opt/cuda"
    context = context_for({"xla": {"flags": ["--xla_gpu_autotune_level=3"]}}, machine(V100), {"XLA_FLAGS": users})
    assert applied("xla_flags", context, monkeypatch).status is Status.UNVERIFIABLE
    assert set(context.environ["XLA_FLAGS"].split()) == {users, "--xla_gpu_autotune_level=3"}
    assert knob("xla_flags").undo(context) is True
    assert context.environ == {"XLA_FLAGS": users}


def test_an_unknown_xla_flag_is_forecast_to_abort() -> None:
    flags = ["--xla_gpu_no_such_flag=1"]
    config = Config.model_validate({"xla": {"flags": flags}})
    forecast = knob("xla_flags").forecast(flags, machine(V100), config)
    assert forecast.status is Status.NO_EFFECT
    assert "aborts" in forecast.message
    assert "xla_gpu_no_such_flag" in forecast.message


# NCCL

HOST = ["docker0", "eno1", "eth0", "eth1", "ib0", "lo"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("eth", ["eth0", "eth1"]),
        ("eth,ib", ["eth0", "eth1", "ib0"]),
        ("=eth0", ["eth0"]),
        ("=eth", []),
        ("^docker,lo", ["eno1", "eth0", "eth1", "ib0"]),
        ("^=eth0", ["docker0", "eno1", "eth1", "ib0", "lo"]),
        ("wlan", []),
        ("^docker,e,ib,lo", []),
    ],
)
def test_interface_patterns(pattern: str, left: list[str]) -> None:
    assert matching_interfaces(pattern, HOST) == left
    problem = interface_problem(pattern, HOST)
    assert (problem is None) == bool(left)
    if problem is not None:
        assert all(name in problem.expected for name in HOST)


def test_interfaces_are_checked_on_the_live_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "interfaces", lambda: HOST)
    value = {"socket_interface": "wlan"}
    live = machine(V100, 2, source="live")
    for here in (live, machine(V100, 0, source="live")):
        assert [problem.where for problem in knob("nccl").problems(value, here, {})] == ["nccl.socket_interface"]
    assert knob("nccl").problems(value, machine(V100, 2), {}) == []
    assert knob("nccl").problems({"socket_interface": "eth"}, live, {}) == []


def test_this_hosts_interfaces_are_listed() -> None:
    assert "lo" in nccl.interfaces()


def test_nvlink_sharp_is_refused_before_hopper() -> None:
    (problem,) = knob("nccl").problems({"algorithm": "NVLSTree"}, machine(V100, 2), {})
    assert "7.0" in problem.why
    assert knob("nccl").problems({"algorithm": "NVLSTree"}, machine(H200, 2), {}) == []


@pytest.mark.parametrize(
    ("sections", "gpus", "status"),
    [
        ({}, 2, Status.NO_EFFECT),
        ({"strategy": {"kind": "mirrored"}}, 1, Status.NO_EFFECT),
        ({"strategy": {"kind": "mirrored"}}, 2, Status.UNVERIFIABLE),
        ({"strategy": {"kind": "multi_worker_mirrored"}}, 1, Status.UNVERIFIABLE),
        ({"strategy": {"kind": "mirrored"}, "communication": {"implementation": "ring"}}, 2, Status.NO_EFFECT),
    ],
)
def test_nccl_is_idle_where_no_collective_uses_it(sections: dict[str, Any], gpus: int, status: Status) -> None:
    config = Config.model_validate({**sections, "nccl": {"algorithm": "Tree"}})
    forecast = knob("nccl").forecast({"algorithm": "Tree"}, machine(V100, gpus), config)
    assert forecast.status is status


# TF32


@pytest.mark.parametrize("value", [True, False])
def test_tf32_is_not_available_on_volta_whatever_the_switch_says(value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"math": {"tf32": value}}, machine(V100))
    outcome = applied("tf32", context, monkeypatch)
    forecast = knob("tf32").forecast(value, context.facts, context.config)
    assert outcome.status is forecast.status is Status.NOT_APPLICABLE
    assert "TF32: not available on this GPU" in outcome.message
    assert "7.0" in outcome.message


def test_tf32_is_judged_by_the_product_not_by_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"math": {"tf32": True}}, machine(H200), {"NVIDIA_TF32_OVERRIDE": "0"})
    assert applied("tf32", context, monkeypatch).status is Status.NO_EFFECT
    context.environ.clear()
    context.tensorflow.started = True
    assert knob("tf32").verify(True, context).observed["rounds"] is True
    from tfvolta.bridge import tensorflow_private

    monkeypatch.setattr(tensorflow_private, "tf32_rounds", lambda device: False)
    assert knob("tf32").verify(True, context).status is Status.NO_EFFECT


# Precision


def mixed(facts: Facts, **settings: Any) -> RecordedContext:
    context = context_for({"mixed_precision": {"policy": "mixed_float16", **settings}}, facts)
    context.model = RecordedModel()
    return context


def test_a_half_converted_model_is_reported_with_both_groups() -> None:
    context = mixed(machine(V100))
    context.model.layers["conv"].dtype = "float16"
    context.bridge.policy = "mixed_float16"
    outcome = knob("policy").verify("mixed_float16", context)
    assert outcome.status is Status.NO_EFFECT
    assert outcome.observed == {
        "global_policy": "mixed_float16",
        "inside": ["conv"],
        "islands": ["head"],
        "outside": ["norm"],
    }
    assert "norm" in outcome.message
    assert "conv" in outcome.message


def test_a_retrofit_counts_what_the_step_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    assert applied("retrofit", context, monkeypatch).status is Status.PENDING
    context.model.traced = True
    outcome = knob("retrofit").verify("mixed_float16", context)
    assert outcome.status is Status.APPLIED
    assert outcome.observed["products"] == {"float16": 3, "float32": 3}


def test_float32_products_without_an_island_are_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100), float32_output=False)
    applied("retrofit", context, monkeypatch)
    context.model.traced = True
    assert knob("retrofit").verify("mixed_float16", context).status is Status.APPLIED
    graph = context.bridge.train_graph(context.model)
    stray = dataclasses.replace(graph, operations={**graph.operations, "Conv2DBackpropInput[float32]": 1})
    monkeypatch.setattr(context.bridge, "train_graph", lambda model: stray)
    outcome = knob("retrofit").verify("mixed_float16", context)
    assert outcome.status is Status.NO_EFFECT
    assert "outside of any island" in outcome.message


def test_a_refused_layer_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    context.bridge.refused = (RefusedLayer("conv", "Conv2D", "writes float32 into its call"),)
    outcome = applied("retrofit", context, monkeypatch)
    assert outcome.observed["refused"] == {"conv": "Conv2D: writes float32 into its call"}
    assert "writes float32 into its call" in outcome.message


def test_variables_in_float16_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    context.model.trainable_variables[0].dtype = "float16"
    outcome = applied("retrofit", context, monkeypatch)
    assert outcome.status is Status.NO_EFFECT
    assert "conv/kernel" in outcome.message


def test_an_eager_model_is_judged_by_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    context.model.run_eagerly = True
    outcome = applied("retrofit", context, monkeypatch)
    assert outcome.status is Status.APPLIED
    assert "runs eagerly" in outcome.message


def test_two_carriers_make_one_change_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100), float32_layers=["BatchNormalization"])
    applied("retrofit", context, monkeypatch)
    applied("float32_islands", context, monkeypatch)
    assert len(changes_of(context)) == 1
    assert knob("float32_islands").undo(context) is True
    assert {made.dtype for made in context.model.layers.values()} == {"float32"}


def test_a_second_model_is_retrofitted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    first = context.model
    applied("retrofit", context, monkeypatch)
    context.model = RecordedModel()
    applied("retrofit", context, monkeypatch)
    assert context.model.layers["conv"].dtype == "float16"
    knob("retrofit").undo(context)
    assert first.layers["conv"].dtype == context.model.layers["conv"].dtype == "float32"


def test_a_pattern_that_matches_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100), float32_layers=["SoftMax", "BatchNormalization"])
    outcome = applied("float32_islands", context, monkeypatch)
    assert outcome.status is Status.NO_EFFECT
    assert "SoftMax" in outcome.message
    assert "Dense" in outcome.message


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32"])
def test_loss_scaling_belongs_to_float16(policy: str) -> None:
    config = Config.model_validate({"mixed_precision": {"policy": policy}})
    assert knob("loss_scale").value(config) is None


def test_a_fixed_loss_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100), loss_scale={"fixed": 128.0})
    applied("loss_scale", context, monkeypatch)
    context.model.traced = True
    value = knob("loss_scale").value(context.config)
    assert knob("loss_scale").verify(value, context).status is Status.APPLIED
    context.model.optimizer.scale = 64.0
    assert knob("loss_scale").verify(value, context).status is Status.NO_EFFECT


def test_a_wrapper_of_the_script_stays_after_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    context = mixed(machine(V100))
    context.model.optimizer.scale, context.model.optimizer.dynamic = 8.0, True
    applied("loss_scale", context, monkeypatch)
    assert knob("loss_scale").undo(context) is False
    assert context.model.optimizer.scale == 32768.0


def test_products_are_counted_by_dtype() -> None:
    operations = {
        "MatMul[float16]": 2,
        "BatchMatMulV2[float16]": 1,
        "Conv2DBackpropFilter[float32]": 4,
        "Mul[float32]": 9,
        "Softmax": 1,
        "Einsum[bfloat16]": 5,
    }
    assert products(operations) == {"float16": 3, "float32": 4, "bfloat16": 5}


def test_bfloat16_on_volta_is_explained() -> None:
    config = Config.model_validate({"mixed_precision": {"policy": "mixed_bfloat16", "allow_bfloat16_emulation": True}})
    message = knob("retrofit").forecast("mixed_bfloat16", machine(V100), config).message
    assert "7.0" in message
    assert "allow_bfloat16_emulation accepts that" in message


# XLA

GPU = JitSituation(keras="keras3", gpus=1)


@pytest.mark.parametrize(
    ("asked", "situation", "on", "word"),
    [
        ("auto", GPU, True, "7.0x"),
        ("auto", dataclasses.replace(GPU, gpus=0), False, "No GPU"),
        ("auto", dataclasses.replace(GPU, obstacles=["lstm: cuDNN"]), False, "lstm: cuDNN"),
        ("auto", dataclasses.replace(GPU, gpus=2, replicas=2), True, "Each of 2 replicas has a compiled step"),
        ("auto", JitSituation(keras="keras2", gpus=2, replicas=2), True, "fuses"),
        ("auto", dataclasses.replace(GPU, deterministic=True), False, "deterministic"),
        ("model", dataclasses.replace(GPU, gpus=0), True, "asks for it"),
        ("off", GPU, False, "asks for it"),
    ],
)
def test_the_decision_on_xla(asked: str, situation: JitSituation, on: bool, word: str) -> None:
    decision = decide_jit(asked, situation)
    assert decision.on is on
    assert word in decision.reason


@pytest.mark.parametrize(
    ("stack", "count", "sections", "compiled"),
    [
        ("keras3", 1, {}, True),
        ("keras3", 0, {}, False),
        ("keras3", 8, {"strategy": {"kind": "mirrored"}}, True),
        ("tf_keras", 8, {"strategy": {"kind": "mirrored"}}, True),
        ("keras3", 8, {"strategy": {"kind": "mirrored", "devices": ["GPU:0"]}}, True),
        ("keras3", 2, {"devices": {"visible": []}}, False),
        ("keras3", 2, {"devices": {"visible": [0]}, "strategy": {"kind": "mirrored"}}, True),
    ],
)
def test_the_forecast_of_auto(stack: str, count: int, sections: dict[str, Any], compiled: bool) -> None:
    facts = machine(V100 if count else None, count, stack=stack)
    forecast = knob("jit").forecast("auto", facts, Config.model_validate({**sections, "xla": {"jit": "auto"}}))
    assert forecast.message.startswith("The train step is compiled") is compiled


def test_auto_leaves_a_model_with_obstacles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"xla": {"jit": "auto"}}, machine(V100))
    context.model = RecordedModel()
    context.bridge.obstacles = ["lstm: cuDNN's kernel"]
    applied("jit", context, monkeypatch)
    context.model.traced = True
    outcome = knob("jit").verify("auto", context)
    assert outcome.status is Status.APPLIED
    assert context.model.jit is False
    assert "lstm: cuDNN's kernel" in outcome.message


def test_a_step_that_was_asked_to_be_compiled_and_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"xla": {"jit": "model"}}, machine(V100))
    context.model = RecordedModel()
    context.bridge.obstacles = ["lstm: cuDNN's kernel"]
    applied("jit", context, monkeypatch)
    context.model.traced = True
    outcome = knob("jit").verify("model", context)
    assert outcome.status is Status.NO_EFFECT
    assert "lstm: cuDNN's kernel" in outcome.message


def test_an_eager_model_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"xla": {"jit": "model"}}, machine(V100))
    context.model = RecordedModel()
    context.model.run_eagerly = True
    assert applied("jit", context, monkeypatch).status is Status.NO_EFFECT


def test_clustering_on_a_cpu_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"xla": {"jit": "clustering"}}, machine())
    outcome = applied("auto_clustering", context, monkeypatch)
    assert outcome.status is Status.NO_EFFECT
    assert "TF_XLA_FLAGS=--tf_xla_cpu_global_jit" in outcome.message
    forecast = knob("auto_clustering").forecast("clustering", context.facts, context.config)
    assert forecast.status is Status.NOT_APPLICABLE


def test_clustering_turns_the_models_own_jit_off_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"xla": {"jit": "clustering"}}, machine(V100))
    context.model = RecordedModel()
    context.model.jit = True
    assert applied("auto_clustering", context, monkeypatch).status is Status.APPLIED
    assert context.model.jit is False
    knob("auto_clustering").undo(context)
    assert context.model.jit is True
    assert context.tensorflow.jit == ""


def test_the_layout_pass_does_not_see_a_compiled_step(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_for({"graph": {"layout_optimizer": True}}, machine(V100))
    context.model = RecordedModel()
    assert applied("layout_optimizer", context, monkeypatch).status is Status.APPLIED
    context.model.jit, context.model.traced = True, True
    assert knob("layout_optimizer").verify(True, context).status is Status.NO_EFFECT


def test_steps_per_execution_names_the_line_to_move() -> None:
    steps = knob("steps_per_execution")
    assert steps.closes_at is Moment.FIT_STARTED
    assert "model.compile(..., steps_per_execution=N)" in steps.move_to
