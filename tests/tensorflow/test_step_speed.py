"""What keeps the host from running ahead of a GPU, or a compiled step from being fast: seen in the traced functions."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for, bridge_for_stack, graphs
from tfvolta.callbacks import ApplyPlan
from tfvolta.outcome import Status
from tfvolta.session import Origin, Session

BRIDGE = bridge_for_stack(STACK)
RUNNING = np.random.default_rng(5)
TOKENS = RUNNING.integers(0, 6, (10, 4)).astype("int32")
TARGETS = RUNNING.normal(size=(10, 1)).astype("float32")


def _model(optimizer: Any, **arguments: Any) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(6, 3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(optimizer, "mse", **arguments)
    BRIDGE.mend(model)
    return model


def _fitted(optimizer: Any, **arguments: Any) -> Any:
    model = _model(optimizer, **arguments)
    data = tf.data.Dataset.from_tensor_slices((TOKENS, TARGETS)).batch(1)
    model.losses_seen = model.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]
    return model


def _loop_conditions(model: Any) -> Iterator[Any]:
    """The operations that decide whether a call of the train function has another step."""
    for traced in graphs.outermost(model.train_function):
        for concrete in traced._list_all_concrete_functions():
            for operation in concrete.graph.get_operations():
                if operation.type in ("While", "StatelessWhile"):
                    yield from concrete.graph._get_function(operation.get_attr("cond").name).graph.get_operations()


def test_the_host_knows_whether_a_call_has_another_step() -> None:
    model = _fitted("sgd", steps_per_execution=3)
    conditions = list(_loop_conditions(model))
    numbers = {each.type: each.inputs[0].dtype for each in conditions if each.type == "Less"}
    assert numbers == {"Less": tf.int32}  # which TensorFlow compares in host memory on a GPU too
    assert all("CPU" in each.device for each in conditions if each.type == "LogicalAnd")
    assert ("LogicalAnd" in {each.type for each in conditions}) is KERAS3


@pytest.mark.parametrize("compiled", [False, True])
def test_calls_of_several_steps_train_as_single_ones(compiled: bool) -> None:
    """Ten batches in calls of three: the last call has one."""
    one, three = (_fitted("adam", steps_per_execution=steps, jit_compile=compiled) for steps in (1, 3))
    for mine, other in zip(three.get_weights(), one.get_weights()):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(three.losses_seen, one.losses_seen, rtol=1e-5)
    assert bridge_for(three).step_counts(three).applied == 20
    data = tf.data.Dataset.from_tensor_slices((TOKENS, TARGETS)).batch(1)
    np.testing.assert_allclose(three.evaluate(data, verbose=0), one.evaluate(data, verbose=0), rtol=1e-5)
    np.testing.assert_allclose(three.predict(TOKENS, verbose=0), one.predict(TOKENS, verbose=0), rtol=1e-5)
    assert bridge_for(three).steps_per_execution(three) == 3


def test_a_second_fit_may_have_calls_of_another_length() -> None:
    model = _fitted("sgd", steps_per_execution=3)
    bridge_for(model).set_steps_per_execution(model, 5)
    BRIDGE.mend(model)
    model.fit(TOKENS, TARGETS, batch_size=1, verbose=0)
    assert bridge_for(model).step_counts(model).applied == 30
    bridge_for(model).set_steps_per_execution(model, 1)
    model.fit(TOKENS, TARGETS, batch_size=1, verbose=0)
    assert bridge_for(model).step_counts(model).applied == 40


@pytest.mark.skipif(not KERAS3, reason="optimisers of Keras 2 compile their updates by themselves")
def test_the_update_alone_is_compiled() -> None:
    """With an overflow in it: a step is skipped, and the weights are those of an update that Keras composes."""
    models, counts = {}, {}
    for fused in ("on", "off"):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.AdamW(0.01, global_clipnorm=1.0), "mse", jit_compile=False)
        sections = {"mixed_precision": {"policy": "mixed_float16"}, "kernels": {"fused_update": fused}}
        config = tfvolta.load_config(**sections, run={"strict": False})
        callback = ApplyPlan(Session(config, stack=STACK, origin=Origin(record=False)))
        targets = np.where(np.arange(10)[:, None] == 6, np.inf, TARGETS).astype("float32")
        x = RUNNING.normal(size=(10, 3)).astype("float32") if not models else models["on"].inputs_seen
        model.inputs_seen = x
        model.fit(x, targets, batch_size=2, epochs=3, shuffle=False, verbose=0, callbacks=[callback])
        models[fused] = model
        assert callback.session.endings["fused_update"].outcome.status is Status.APPLIED
        counts[fused] = bridge_for(model).step_counts(model)
        assert ("fused_update" in bridge_for(model).train_graph(model).compiled_functions) is (fused == "on")
    assert counts["on"] == counts["off"] and counts["on"].skipped >= 3 and counts["on"].applied > 6
    for mine, other in zip(models["on"].get_weights(), models["off"].get_weights()):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=1e-4)


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "momentum": lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
}
if not KERAS3:
    OPTIMIZERS["legacy adam"] = lambda: keras.optimizers.legacy.Adam(0.01)


@pytest.mark.skipif(KERAS3, reason="Keras 3 adds rows up without looking for equal ones")
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_rows_that_occur_more_than_once_are_added_up_without_a_loop(name: str) -> None:
    models = {compiled: _model(OPTIMIZERS[name](), jit_compile=compiled) for compiled in (False, True)}
    for model in models.values():
        for start in (0, 5, 2):
            model.train_on_batch(TOKENS[start : start + 5], TARGETS[start : start + 5])
    assert models[True].optimizer.__dict__.keys() & {
        "_deduplicate_sparse_grad",
        "_resource_apply_sparse_duplicate_indices",
    }
    for mine, other in zip(models[True].get_weights(), models[False].get_weights()):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    operations = {
        compiled: {each.split("[")[0] for each in bridge_for(model).train_graph(model).operations}
        for compiled, model in models.items()
    }
    assert "Unique" in operations[False] and "Unique" not in operations[True]
