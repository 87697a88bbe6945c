"""Keras 3: XLA per model from any hook, its reasons, batches per call, and what a traced graph says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack, graphs

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
X = np.random.RandomState(0).randn(40, 6).astype("float32")
Y = X[:, :1]


def mlp(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    return model


class Calls(keras.callbacks.Callback):
    """Runs something in one hook."""

    def __init__(self, hook: str, action: Any) -> None:
        super().__init__()
        setattr(self, hook, lambda *args, **kwargs: action(self.model))


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end"])
@pytest.mark.parametrize("traced_before", [False, True])
def test_jit_set_from_any_hook_reaches_the_next_step(hook: str, traced_before: bool) -> None:
    model = mlp()
    if traced_before:
        model.fit(X, Y, verbose=0)
        assert not BRIDGE.train_graph(model).must_compile
    done = []

    def switch(model: Any) -> None:
        if not done:
            done.append(True)
            BRIDGE.set_jit(model, True)

    model.fit(X, Y, batch_size=20, epochs=2, verbose=0, callbacks=[Calls(hook, switch)])
    assert BRIDGE.train_graph(model).must_compile and BRIDGE.jit(model).effective
    BRIDGE.set_jit(model, False)
    model.fit(X, Y, verbose=0)
    assert not BRIDGE.train_graph(model).must_compile
    assert BRIDGE.jit(model).requested is False


def test_jit_set_in_set_model(tmp_path: Any) -> None:
    class Switches(keras.callbacks.Callback):
        def set_model(self, model: Any) -> None:
            super().set_model(model)
            BRIDGE.set_jit(model, True)

    model = mlp()
    model.fit(X, Y, verbose=0)
    model.fit(X, Y, verbose=0, callbacks=[Switches()])
    assert BRIDGE.train_graph(model).must_compile
    model.save(tmp_path / "m.keras")
    assert keras.models.load_model(tmp_path / "m.keras").jit_compile is True


def test_reasons_why_there_is_no_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without an accelerator" in BRIDGE.jit(mlp()).reason
    assert "run_eagerly" in BRIDGE.jit(mlp(run_eagerly=True)).reason
    sequence = keras.Sequential([keras.Input((5, 3)), layers.LSTM(4, name="recurrent"), layers.Dense(1)])
    sequence.layers[0].supports_jit = False  # as Keras 3 sets it where cuDNN is there
    sequence.compile("sgd", "mse", jit_compile=False)
    BRIDGE.set_jit(sequence, True)
    state = BRIDGE.jit(sequence)
    assert state.requested is True and not state.effective and "recurrent (LSTM)" in state.reason
    assert any("recurrent (LSTM)" in line and "cuDNN" in line for line in BRIDGE.xla_obstacles(sequence))
    sequence.compile("sgd", "mse", jit_compile=False)
    assert BRIDGE.jit(sequence).requested is False  # what was asked for before this compile is gone
    gpu = type("Device", (), {"device_type": "GPU"})()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [gpu])
    assert "jit_compile=False" in BRIDGE.jit(mlp(jit_compile=False)).reason


def test_obstacles_of_string_inputs_and_lookups() -> None:
    words = keras.Input((1,), dtype="string", name="words")
    hot = layers.StringLookup(vocabulary=["a"], output_mode="one_hot", name="lookup")(words)
    lines = BRIDGE.xla_obstacles(keras.Model(words, layers.Dense(1)(layers.Flatten()(hot))))
    assert any(line.startswith("words (InputLayer): string") for line in lines)
    assert any(line.startswith("lookup (StringLookup): strings") for line in lines)


def test_the_graph_is_summed_once_per_function_and_trace() -> None:
    model = mlp()
    assert graphs.summarize(model) is None and not BRIDGE.is_traced(model)
    model.fit(X, Y, batch_size=20, verbose=0)
    summary = BRIDGE.train_graph(model)
    # forward of two layers, kernel gradients of two, input gradient of one; Keras traces twice as it makes variables
    assert summary.count("MatMul", "float32") == 5 * summary.traces and summary.count("MatMul") == 5 * summary.traces
    assert summary.collectives == {} and summary.functions > summary.traces
    looped = mlp(steps_per_execution=2)
    looped.fit(X, Y, batch_size=20, verbose=0)
    inside = BRIDGE.train_graph(looped)
    assert inside.count("MatMul") == 5 * inside.traces and inside.count("While") + inside.count("StatelessWhile") > 0
    eager = mlp(run_eagerly=True)
    eager.fit(X, Y, verbose=0)
    assert BRIDGE.train_graph(eager) is None and not BRIDGE.is_traced(eager)


def test_the_graph_of_a_train_step_that_is_a_tf_function_itself() -> None:
    class Custom(keras.Model):
        @tf.function
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    inputs = keras.Input((6,))
    model = Custom(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=20, verbose=0)
    summary = BRIDGE.train_graph(model)
    assert summary.count("MatMul") == 2 * summary.traces


def test_steps_per_execution_set_before_fit() -> None:
    ends: list[int] = []
    model = mlp()
    model.fit(X, Y, batch_size=10, verbose=0)
    BRIDGE.set_steps_per_execution(model, 2)
    assert BRIDGE.steps_per_execution(model) == 2
    recorder = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(batch))
    model.fit(X, Y, batch_size=10, verbose=0, callbacks=[recorder])
    assert ends == [1, 3] and int(model.optimizer.iterations) == 8
    assert model.get_compile_config()["steps_per_execution"] == 2


def test_examples_seen() -> None:
    seen: list[Any] = []
    recorder = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(BRIDGE.examples_seen(model))
    )
    model = mlp()
    assert BRIDGE.examples_seen(model) == 0
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[recorder])
    assert seen == [16, 32, 40]

    class Custom(keras.Model):
        def train_step(self, data: Any) -> Any:
            return {"loss": tf.reduce_mean(self(data[0]))}

    inputs = keras.Input((6,))
    model = Custom(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=16, verbose=0)
    assert BRIDGE.examples_seen(model) is None
