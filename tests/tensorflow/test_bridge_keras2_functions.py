"""Traced functions, XLA and steps per execution of Keras 2 models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tfvolta.errors import BridgeError

L = keras.layers
BRIDGE = models.bridge()


def tiny() -> Any:
    """One dense layer on images."""
    return keras.Sequential([L.Flatten(input_shape=(8, 8, 3)), L.Dense(models.CLASSES, activation="softmax")])


@pytest.mark.parametrize("hook", ["set_model", "on_train_begin", "on_epoch_begin"])
def test_jit_set_from_every_hook_of_a_second_fit(hook: str) -> None:
    model = models.compiled(tiny)
    models.train(model, epochs=1)
    assert not BRIDGE.train_graph(model).must_compile
    models.train(model, callbacks=[models.Arrange(lambda m: BRIDGE.set_jit(m, True), hook)])
    assert BRIDGE.train_graph(model).must_compile
    assert BRIDGE.jit(model).effective
    models.train(model, callbacks=[models.Arrange(lambda m: BRIDGE.set_jit(m, False), hook)])
    assert not BRIDGE.train_graph(model).must_compile
    assert not BRIDGE.jit(model).effective


@pytest.mark.parametrize("hook", ["set_model", "on_train_begin", "on_epoch_begin"])
def test_functions_can_be_reset_from_every_hook(hook: str) -> None:
    model = models.compiled(tiny)
    x, y = models.data(model)
    models.train(model, epochs=1, validation_data=(x, y))  # creates the slots, for which TensorFlow traces once more
    models.train(model, callbacks=[models.Arrange(BRIDGE.reset_functions, hook)], validation_data=(x, y))
    assert BRIDGE.is_traced(model)
    assert BRIDGE.trace_count(model) == 1
    BRIDGE.reset_functions(model)
    assert not BRIDGE.is_traced(model)
    assert BRIDGE.trace_count(model) == 0
    assert BRIDGE.train_graph(model) is None


def test_a_reset_keeps_a_model_that_makes_its_own_train_function() -> None:
    class Own(keras.Sequential):  # type: ignore[misc,name-defined]
        made = 0

        def make_train_function(self, force: bool = False) -> Any:
            self.made += 1
            return super().make_train_function(force=force)

    model = models.compiled(lambda: Own(tiny().layers))
    models.train(model, epochs=2, callbacks=[models.Arrange(BRIDGE.reset_functions, "on_train_begin")])
    assert model.made == 2


def test_auto_never_reaches_keras() -> None:
    with pytest.raises(BridgeError, match="auto"):
        BRIDGE.set_jit(models.compiled(tiny), "auto")  # type: ignore[arg-type]


def test_an_eager_model_is_not_compiled_and_says_so() -> None:
    model = models.compiled(tiny, run_eagerly=True)
    with pytest.raises(BridgeError, match="eager"):
        BRIDGE.set_jit(model, True)
    models.train(model, epochs=1)
    assert not BRIDGE.is_traced(model)
    assert BRIDGE.train_graph(model) is None
    model.run_eagerly = None
    model.jit_compile = True
    model.run_eagerly = True
    state = BRIDGE.jit(model)
    assert (state.requested, state.effective) == (True, False)
    assert "eager" in state.reason


def test_an_optimizer_that_compiles_itself_is_reported(monkeypatch: Any) -> None:
    # Keras 2 looks for a GPU in the optimiser's constructor.
    config = BRIDGE.package.private("optimizers.optimizer").tf.config
    monkeypatch.setattr(config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    optimizer = keras.optimizers.SGD()
    monkeypatch.undo()
    model = models.compiled(tiny, optimizer)
    assert "SGD" in BRIDGE.jit(model).reason
    model = models.compiled(tiny, keras.mixed_precision.LossScaleOptimizer(optimizer))
    assert "SGD" in BRIDGE.jit(model).reason
    assert BRIDGE.jit(models.compiled(tiny)).reason == ""


def test_is_compiled() -> None:
    model = tiny()
    assert not BRIDGE.is_compiled(model)
    model.compile("sgd", "mse")
    assert BRIDGE.is_compiled(model)


def test_steps_per_execution_outside_fit() -> None:
    model = models.compiled(tiny)
    assert BRIDGE.steps_per_execution(model) == 1
    models.train(model, epochs=1)
    BRIDGE.set_steps_per_execution(model, 4)
    assert BRIDGE.steps_per_execution(model) == 4
    ends: list[int] = []
    watch = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: ends.append(batch))
    models.train(model, epochs=1, callbacks=[watch], batch_size=8)
    assert ends == [3, 7]
    assert int(model.optimizer.iterations) == 4 + 8
    assert BRIDGE.steps_per_execution(tiny()) == 1


def test_examples_seen() -> None:
    model = models.compiled(tiny)
    seen: list[Any] = []
    watch = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: seen.append(BRIDGE.examples_seen(model)))
    models.train(model, epochs=2, callbacks=[watch])
    assert seen == [16, 32, 48, 64] * 2
    assert BRIDGE.examples_seen(tiny()) is None


def test_examples_seen_of_custom_steps() -> None:
    class Calls(keras.Sequential):  # type: ignore[misc,name-defined]
        def train_step(self, batch: Any) -> Any:
            return super().train_step(batch)

    class Own(keras.Sequential):  # type: ignore[misc,name-defined]
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x, training=True)))
            self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
            return {"loss": loss}

    for cls, expected in ((Calls, 64), (Own, None)):
        model = models.compiled(lambda cls=cls: cls(tiny().layers))
        models.train(model, epochs=1)
        assert BRIDGE.examples_seen(model) == expected


def test_layers_that_xla_cannot_compile() -> None:
    words = keras.Input((1,), dtype="string", name="words")
    x = L.Embedding(5, 4)(L.StringLookup(vocabulary=["a", "b"], name="lookup")(words))
    x = L.Bidirectional(L.LSTM(3, return_sequences=True), name="both")(x)
    x = L.LSTM(3, name="slow", recurrent_activation="tanh", return_sequences=True)(x)
    model = keras.Model(words, L.GRU(3, name="gru")(x))
    found = " ".join(BRIDGE.xla_obstacles(model))
    for name in ("words", "lookup", "both/forward_", "both/backward_", "gru (GRU)"):
        assert name in found
    assert "slow" not in found  # no cuDNN branch in its graph
    assert BRIDGE.xla_obstacles(models.functional()) == []


@pytest.mark.parametrize("kind", ["StringLookup", "RandomRotation", "RandomZoom"])
def test_obstacles_that_can_be_tried_on_a_cpu_are_obstacles(kind: str) -> None:
    if kind == "StringLookup":
        layer, value = L.StringLookup(vocabulary=["a"]), tf.constant([["a"]])
    else:
        layer, value = getattr(L, kind)(0.2), tf.constant(np.ones((2, 8, 8, 3), "float32"))
    model = keras.Sequential([keras.Input(value.shape[1:], dtype=value.dtype), layer])
    assert kind in " ".join(BRIDGE.xla_obstacles(model))
    with pytest.raises(Exception):  # noqa: B017 - TensorFlow's classes differ by version
        tf.function(lambda item: model(item, training=True), jit_compile=True)(value)


@pytest.mark.skipif(STACK != "keras2", reason="TensorFlow Addons is for TensorFlow 2.15")
def test_an_addons_layer_with_an_operation_of_its_own() -> None:
    import tensorflow_addons as tfa

    a, b = keras.Input((4, 6, 6)), keras.Input((4, 6, 6))
    layer = tfa.layers.CorrelationCost(1, 2, 1, 1, 2, "channels_first", name="cost")
    model = keras.Model([a, b], layer([a, b]))
    assert "cost" in " ".join(BRIDGE.xla_obstacles(model))
