"""Activations that are computed again: training stays the same, what is left out is named, and it ends with the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.recompute_models import (
    FEATURES,
    LABELS,
    Subclassed,
    again,
    attention,
    branches,
    distance,
    nested,
    outcome,
    residual,
    sequential,
    trained,
)
from tfvolta.bridge import bridge_for
from tfvolta.errors import BridgeError, ConfigError, NoEffectError, PlanError
from tfvolta.outcome import Status

layers = keras.layers
# Gradients that meet are added in another order, and TensorFlow 2.21 fuses a product with what follows where nothing
# else reads it: the last digit differs, and eight steps of training make more of that.
CLOSE = 1e-5
MODELS = {
    "sequential": (sequential, 6),
    "residual": (residual, 5),
    "nested": (nested, 5),
    "subclassed": (Subclassed, 5),
    "attention": (attention, None),
    "branches": (branches, None),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_step_by_step(name: str) -> None:
    make, count = MODELS[name]
    plain, plain_losses, plain_steps = trained(make)
    callback = again(every=1)
    model, losses, steps = trained(make, callback)
    assert losses == pytest.approx(plain_losses, rel=CLOSE)
    assert distance(plain_steps, steps) < CLOSE  # batch norm's moving statistics are among them
    assert len(model.trainable_variables) == len(plain.trainable_variables)
    found = outcome(callback)
    assert found.status is Status.APPLIED and found.observed["saved_bytes"] > 0
    assert found.observed["left_out"] == {} and found.observed["products_again"] > 0
    if count is not None:
        assert len(found.observed["segments"]) == count, found.observed["segments"]


def test_products_are_there_twice_for_the_layers_named_and_once_again_after_the_fit() -> None:
    counted: dict[str, float] = {}

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            graph = bridge_for(self.model).train_graph(self.model)
            counted["inside"] = graph.count("MatMul") / graph.traces

    plain, _, _ = trained(residual, Count())
    single = counted["inside"]
    callback = again(layers=["dense1", "dense2"])
    keras.utils.set_random_seed(3)
    plain.fit(FEATURES, LABELS, 8, 1, verbose=0, callbacks=[callback, Count()])
    assert counted["inside"] == single + 2 and outcome(callback).observed["products_again"] == 2
    plain.fit(FEATURES, LABELS, 8, 1, verbose=0, callbacks=[Count()])
    assert counted["inside"] == single
    assert bridge_for(plain).recompute_state(plain) is None


def test_layers_that_follow_each_other_are_one_segment_of_a_block() -> None:
    callback = again(layers=["dense*", "norm*", "drop*", "add*"])
    _, _, steps = trained(residual, callback)
    names = [segment["name"] for segment in outcome(callback).observed["segments"]]
    assert names == ["dense0 to add0", "dense1 to add1", "dense2 to add2"] or len(names) < 3
    assert distance(trained(residual)[2], steps) < CLOSE


def test_blocks_join_in_segments_of_several() -> None:
    callback = again(every=2)
    _, _, steps = trained(residual, callback)
    names = [segment["name"] for segment in outcome(callback).observed["segments"]]
    assert names == ["stem to add0", "dense1 to add2", "head"]
    assert distance(trained(residual)[2], steps) < CLOSE


@pytest.mark.parametrize("arguments", [{"steps_per_execution": 2}, {"jit_compile": True}], ids=str)
def test_calls_of_several_steps_and_steps_that_xla_compiles(arguments: dict[str, Any]) -> None:
    def without_dropout() -> Any:  # Keras 2's random numbers have no seed under XLA
        inputs = keras.Input((8,))
        tensor = layers.Dense(16, activation="relu")(inputs)
        tensor = layers.Dense(16, activation="relu")(layers.BatchNormalization(momentum=0.5)(tensor))
        return keras.Model(inputs, layers.Dense(1)(tensor))

    callback = again(every=2)
    _, losses, steps = trained(without_dropout, callback, **arguments)
    _, plain_losses, plain_steps = trained(without_dropout, **arguments)
    assert losses == pytest.approx(plain_losses, rel=CLOSE) and distance(plain_steps, steps) < CLOSE
    assert outcome(callback).status is Status.APPLIED


def test_half_precision_with_a_loss_scale() -> None:
    def half() -> Any:
        keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            return residual()
        finally:
            keras.mixed_precision.set_global_policy("float32")

    callback = again(every=1)
    _, losses, steps = trained(half, callback)
    _, plain_losses, plain_steps = trained(half)
    assert losses == pytest.approx(plain_losses, rel=1e-3) and distance(plain_steps, steps) < 2e-3
    assert outcome(callback).status is Status.APPLIED


def with_layer(make: Any) -> Any:
    """A model with a layer in the middle."""

    def build() -> Any:
        inputs = keras.Input((8,))
        tensor = make(name="odd")(layers.Dense(8, activation="relu", name="first")(inputs))
        return keras.Model(inputs, layers.Dense(1)(layers.Dense(8, activation="relu")(tensor)))

    return build


class Python(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return tf.ensure_shape(tf.py_function(lambda x: x * 2, [inputs], inputs.dtype), inputs.shape)


class Printing(layers.Layer):
    def call(self, inputs: Any) -> Any:
        tf.print("called", output_stream="file:///dev/null")
        return inputs * 2


class Losing(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * tf.reduce_mean(inputs))
        return inputs * 2


class Drawing(layers.Layer):
    def call(self, inputs: Any) -> Any:
        body = lambda n, x: (n + 1, x + tf.random.uniform(tf.shape(x), seed=1))  # noqa: E731
        return tf.while_loop(lambda n, x: n < 2, body, (0, inputs))[1]


ODD = {Python: "runs Python code", Printing: "prints", Losing: "adds a loss of its own", Drawing: "inside of a loop"}


@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
def test_layers_that_cannot_run_twice_are_left_out_with_the_reason(kind: Any) -> None:
    callback = again(every=1)
    _, _, steps = trained(with_layer(kind), callback)
    found = outcome(callback)
    assert found.status is Status.APPLIED and list(found.observed["left_out"]) == ["odd"]
    assert ODD[kind] in found.observed["left_out"]["odd"] and "odd" in found.message
    assert distance(trained(with_layer(kind))[2], steps) < CLOSE


def test_named_layers_that_cannot_run_twice_are_refused() -> None:
    with pytest.raises(BridgeError, match="runs Python code"):
        trained(with_layer(Python), again(layers=["odd"]))

    def stateful() -> Any:
        inputs = keras.Input((2, 4), batch_size=8)
        return keras.Model(inputs, layers.Dense(1)(layers.LSTM(4, stateful=True, name="memory")(inputs)))

    model = stateful()
    model.compile("sgd", "mse")
    data = FEATURES.reshape(32, 2, 4)
    with pytest.raises(BridgeError, match=r"memory carries its state from batch to batch"):
        model.fit(data, LABELS, 8, verbose=0, callbacks=[again(layers=["memory"])])
    callback = again(every=1)
    model.fit(data, LABELS, 8, verbose=0, callbacks=[callback])
    assert list(outcome(callback).observed["left_out"]) == ["memory"]


def test_random_numbers_of_tensorflow_are_the_same_in_both_passes() -> None:
    class Noise(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs * tf.nn.dropout(tf.random.normal(tf.shape(inputs), seed=4), 0.3, seed=3)

    callback = again(every=1)
    _, _, steps = trained(with_layer(Noise), callback)
    assert outcome(callback).observed["left_out"] == {}
    assert distance(trained(with_layer(Noise))[2], steps) < CLOSE


def test_names_that_match_nothing_are_refused_all_at_once_with_the_nearest() -> None:
    with pytest.raises(BridgeError) as error:
        trained(residual, again(layers=["dense", "drp1"]))
    assert "dense, which matches none" in str(error.value) and "did you mean" in str(error.value)
    assert "drop1" in str(error.value)


def test_a_budget_chooses_and_one_that_nothing_fits_is_refused_with_the_smallest() -> None:
    data = np.zeros((4096, 32), "float32")

    def fit(budget_mb: int) -> Any:
        inputs = tensor = keras.Input((32,))
        for _ in range(8):
            inside = layers.Dense(32)(layers.Dense(128, activation="relu")(tensor))
            tensor = layers.Add()([tensor, inside])
        model = keras.Model(inputs, layers.Dense(1)(tensor))
        model.compile("sgd", "mse")
        callback = again(budget_mb=budget_mb)
        model.fit(data, data[:, :1], 4096, verbose=0, callbacks=[callback])
        return outcome(callback)

    whole = fit(100)
    assert whole.status is Status.APPLIED and "fit into 100 MiB as they are" in whole.message
    partly = fit(14)
    assert partly.status is Status.APPLIED and 0 < len(partly.observed["segments"]) < 8
    with pytest.raises(BridgeError, match=r"budget_mb: 7, or a smaller batch"):
        fit(2)
    assert len(fit(7).observed["segments"]) == 8


def test_what_has_no_effect_says_so() -> None:
    with pytest.raises(NoEffectError, match="runs eagerly"):
        trained(residual, again(every=1), run_eagerly=True)

    class NoTape(keras.Model):
        def train_step(self, data: Any) -> Any:
            return {"loss": tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)}

    def build() -> Any:
        inputs = keras.Input((8,))
        return NoTape(inputs, layers.Dense(1)(layers.Dense(8)(inputs)))

    with pytest.raises(NoEffectError, match="no tape took gradients"):
        trained(build, again(every=1))


def test_a_train_step_of_its_own_with_a_tape() -> None:
    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(data[0], training=True) - data[1]) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    def build() -> Any:
        inputs = keras.Input((8,))
        hidden = layers.Dropout(0.2)(layers.Dense(8, activation="relu")(inputs))
        return Own(inputs, layers.Dense(1)(hidden))

    callback = again(every=2)
    _, _, steps = trained(build, callback)
    assert outcome(callback).status is Status.APPLIED and distance(trained(build)[2], steps) < CLOSE


def test_exactly_one_way_is_given() -> None:
    for arguments in ({}, {"every": 1, "budget_mb": 3}, {"layers": []}):
        with pytest.raises(PlanError, match="exactly one of layers, every and budget_mb"):
            again(**arguments)
    with pytest.raises(ConfigError, match=r"memory\.recompute\.every"):
        again(every=0)


@pytest.mark.skipif(not KERAS3, reason="RematScope is Keras 3's")
def test_a_model_that_keras_is_to_compute_again_is_refused() -> None:
    with keras.RematScope(mode="full"):
        model = sequential()
    model.compile("sgd", "mse")
    with pytest.raises(BridgeError, match=r"keras\.RematScope"):
        model.fit(FEATURES, LABELS, verbose=0, callbacks=[again(every=1)])


def test_no_read_of_a_variable_can_come_after_its_assignment() -> None:
    """What TensorFlow's graph optimiser leaves: without an order, a late read sees the weights of the next step."""
    from tensorflow.python.eager import context

    model = residual()
    model.compile("sgd", "mse", jit_compile=False)
    context.enable_run_metadata()
    try:
        model.fit(FEATURES[:8], LABELS[:8], 8, 1, verbose=0, callbacks=[again(every=2)])
        found = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    graphs = [[*each.post_optimization_graph.node] for each in found.function_graphs]
    nodes = {node.name: node for node in max(graphs, key=len)}
    names = {name: [part.lstrip("^").split(":")[0] for part in node.input] for name, node in nodes.items()}

    def before(name: str) -> set[str]:
        seen, pending = set(), [name]
        while pending:
            for other in names[pending.pop()]:
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        return seen

    assigns = [name for name, node in nodes.items() if node.op.startswith("Assign")]
    reads = [name for name, node in nodes.items() if node.op == "ReadVariableOp"]
    assert assigns and reads
    # Products that the optimiser had not merged: both passes are there.
    assert sum("MatMul" in node.op for node in nodes.values()) > 3 * 5
    for assign in assigns:
        earlier = before(assign)
        same = [read for read in reads if names[read][0] == names[assign][0]]
        assert all(read in earlier or assign in before(read) for read in same), assign
