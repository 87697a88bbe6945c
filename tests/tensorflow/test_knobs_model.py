"""Knobs that are put on a model, against the real Keras of this stack: outcomes come from the traced step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.pure.recorded_context import V100, machine
from tests.stack import STACK, keras, tf
from tfvolta.bridge.tensorflow_private import layout_changes_in_probe, tf32_rounds
from tfvolta.config.schema import Config
from tfvolta.knobs.registry import knob, knobs_for
from tfvolta.outcome import Status
from tfvolta.session.context import LiveContext

X = np.linspace(-1.0, 1.0, 16 * 8 * 8 * 3, dtype="float32").reshape(16, 8, 8, 3)
Y = np.arange(16) % 4
DATA = {"x": X, "y": Y, "batch_size": 8, "verbose": 0}


@pytest.fixture(autouse=True)
def _restored() -> Any:
    yield
    keras.mixed_precision.set_global_policy("float32")
    keras.backend.clear_session()


def make_model(compiled: bool = True, **arguments: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(name="flat"),
            layers.Dense(8, name="hidden"),
            layers.Dense(4, activation="softmax", name="head"),
        ]
    )
    if compiled:
        model.compile(
            keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", **{"jit_compile": False, **arguments}
        )
    return model


class Context(LiveContext):
    """A context that keeps its model alive, as the test's only reference to it."""

    kept: Any = None


def context_for(sections: dict[str, Any], model: Any = None) -> Context:
    context = Context(Config.model_validate(sections), machine(V100, stack=STACK), environ={})
    context.model = context.kept = model
    return context


def apply_all(context: LiveContext) -> None:
    for each, value in knobs_for(context.config):
        each.apply(value, context)


def verify_all(context: LiveContext) -> dict[str, Any]:
    return {each.name: each.verify(value, context) for each, value in knobs_for(context.config)}


def statuses(context: LiveContext) -> dict[str, str]:
    return {name: outcome.status.value for name, outcome in verify_all(context).items()}


MIXED = {
    "mixed_precision": {
        "policy": "mixed_float16",
        "float32_layers": ["BatchNormalization"],
        "loss_scale": {"initial": 1024.0, "growth_steps": 50},
    }
}


def test_policy_before_the_layers() -> None:
    context = context_for({"mixed_precision": {"policy": "mixed_float16"}})
    policy = knob("policy")
    policy.apply("mixed_float16", context)
    assert policy.verify("mixed_float16", context).status is Status.PENDING
    context.kept = context.model = make_model()
    outcome = policy.verify("mixed_float16", context)
    assert outcome.status is Status.APPLIED
    assert {"conv", "norm", "hidden", "head"} <= set(outcome.observed["inside"])
    policy.undo(context)
    assert context.bridge.global_policy() == "float32"


def test_policy_after_the_layers_names_them() -> None:
    context = context_for({"mixed_precision": {"policy": "mixed_float16"}}, make_model())
    knob("policy").apply("mixed_float16", context)
    outcome = knob("policy").verify("mixed_float16", context)
    assert outcome.status is Status.NO_EFFECT
    assert "conv" in outcome.message
    assert "hidden" in outcome.message


def test_a_half_converted_model_is_reported_with_both_groups() -> None:
    layers = keras.layers
    inputs = keras.Input((4,))
    hidden = layers.Dense(4, name="old")(inputs)
    keras.mixed_precision.set_global_policy("mixed_float16")
    hidden = layers.Dense(4, name="new")(hidden)
    keras.mixed_precision.set_global_policy("float32")
    outputs = layers.Dense(2, name="head")(hidden)
    context = context_for({"mixed_precision": {"policy": "mixed_float16"}}, keras.Model(inputs, outputs))
    outcome = knob("policy").verify("mixed_float16", context)
    assert outcome.status is Status.NO_EFFECT
    assert (outcome.observed["inside"], outcome.observed["outside"]) == (["new"], ["old"])


def test_retrofit_islands_and_loss_scale_of_a_trained_model() -> None:
    model = make_model()
    model.fit(**DATA)
    context = context_for(MIXED, model)
    for name in ("retrofit", "float32_islands", "loss_scale"):
        knob(name).apply(knob(name).value(context.config), context)
    assert {name: status for name, status in statuses(context).items() if name != "policy"} == {
        "built_islands": "APPLIED",
        "retrofit": "PENDING",
        "float32_islands": "APPLIED",
        "loss_scale": "PENDING",
    }
    model.fit(**DATA)
    outcomes = verify_all(context)
    assert {name: outcome.status.value for name, outcome in outcomes.items()} == {
        "policy": "APPLIED",
        "built_islands": "APPLIED",
        "retrofit": "APPLIED",
        "float32_islands": "APPLIED",
        "loss_scale": "APPLIED",
    }
    assert outcomes["retrofit"].observed["products"]["float16"] >= 5
    assert sorted(outcomes["float32_islands"].observed["islands"]) == ["head", "norm"]
    assert outcomes["loss_scale"].observed["finiteness_checks"] > 0
    assert [knob(name).undo(context) for name in ("loss_scale", "float32_islands")] == [True, True]
    assert set(context.bridge.compute_dtypes(model).values()) == {"float32"}
    model.fit(**DATA)
    assert knob("retrofit").verify("mixed_float16", context).status is Status.NO_EFFECT


def test_a_fixed_loss_scale() -> None:
    sections = {"mixed_precision": {"policy": "mixed_float16", "loss_scale": {"fixed": 256.0}}}
    context = context_for(sections, make_model())
    apply_all(context)
    context.model.fit(**DATA)
    outcome = knob("loss_scale").verify(knob("loss_scale").value(context.config), context)
    assert outcome.status is Status.APPLIED
    assert (outcome.observed["scale"], outcome.observed["dynamic"]) == (256.0, False)


def test_a_step_traced_before_the_policy_is_no_success() -> None:
    """The layers read float16 here; only the traced step shows that nothing has changed."""
    model = make_model()
    model.fit(**DATA)
    context = context_for({"mixed_precision": {"policy": "mixed_float16"}}, model)
    graph = context.bridge.train_graph(model)
    knob("retrofit").apply("mixed_float16", context)
    context.bridge.__class__, kept = (
        type("Stale", (type(context.bridge),), {"train_graph": lambda self, m: graph}),
        (type(context.bridge)),
    )
    try:
        outcome = knob("retrofit").verify("mixed_float16", context)
    finally:
        context.bridge.__class__ = kept
    assert outcome.status is Status.NO_EFFECT
    assert "no matrix product or convolution in float16" in outcome.message


@pytest.mark.parametrize(("asked", "compiled"), [("model", True), ("off", False)])
def test_jit_is_seen_in_the_traced_step(asked: str, compiled: bool) -> None:
    model = make_model(jit_compile=not compiled)
    model.fit(**DATA)
    context = context_for({"xla": {"jit": asked}}, model)
    apply_all(context)
    assert statuses(context) == {"jit": "PENDING"}
    model.fit(**DATA)
    outcome = verify_all(context)["jit"]
    assert outcome.status is Status.APPLIED
    assert outcome.observed["compiled"] is compiled
    assert context.bridge.train_graph(model).must_compile is compiled
    assert knob("jit").undo(context) is True
    model.fit(**DATA)
    assert knob("jit").verify(asked, context_for({"xla": {"jit": asked}}, model)).status is Status.NO_EFFECT


def test_an_eager_model_is_not_compiled() -> None:
    context = context_for({"xla": {"jit": "model"}}, make_model(run_eagerly=True))
    knob("jit").apply("model", context)
    outcome = knob("jit").verify("model", context)
    assert outcome.status is Status.NO_EFFECT and "run_eagerly" in outcome.message


def test_steps_per_execution_runs_several_batches_in_a_call() -> None:
    calls: list[int] = []
    count = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs=None: calls.append(batch))
    context = context_for({"fit": {"steps_per_execution": 2}}, make_model())
    apply_all(context)
    assert statuses(context) == {"steps_per_execution": "APPLIED"}
    context.model.fit(X, Y, batch_size=4, verbose=0, callbacks=[count])
    assert len(calls) == 2
    assert int(context.model.optimizer.iterations) == 4
    assert knob("steps_per_execution").undo(context) is True
    context.model.fit(X, Y, batch_size=4, verbose=0, callbacks=[count])
    assert len(calls) == 2 + 4
    context.in_fit = True
    apply_all(context)
    assert knob("steps_per_execution").undo(context) is False


def test_the_layout_option_needs_a_gpu_and_is_taken_back() -> None:
    context = context_for({"graph": {"layout_optimizer": False}})
    apply_all(context)
    assert tf.config.optimizer.get_experimental_options()["layout_optimizer"] is False
    if not tf.config.list_physical_devices("GPU"):
        assert statuses(context) == {"layout_optimizer": "NOT_APPLICABLE"}
    assert knob("layout_optimizer").undo(context) is True
    assert tf.config.optimizer.get_experimental_options()["layout_optimizer"] is True


def test_probes_find_nothing_on_a_cpu() -> None:
    assert layout_changes_in_probe("CPU:0") == 0
    assert tf32_rounds("CPU:0") is False


def test_cudnn_settings_do_not_reach_a_compiled_step() -> None:
    context = context_for({"cudnn": {"workspace_limit_mb": 64, "autotune": False}}, make_model(jit_compile=True))
    apply_all(context)
    assert set(statuses(context).values()) == {"UNVERIFIABLE"}
    context.model.fit(**DATA)
    assert set(statuses(context).values()) == {"NO_EFFECT"}
    plain = context_for({"cudnn": {"workspace_limit_mb": 64}}, make_model())
    apply_all(plain)
    plain.model.fit(**DATA)
    assert statuses(plain) == {"cudnn_workspace": "UNVERIFIABLE"}
    assert verify_all(plain)["cudnn_workspace"].observed["convolutions"] > 0
