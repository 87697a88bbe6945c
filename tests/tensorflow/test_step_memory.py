"""A train step traced for a batch that it will not run on, and what its memory is made of."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Callable, Iterator, Optional

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tfvolta import load_config
from tfvolta.audit import tensor_cores
from tfvolta.bridge import bridge_for_stack
from tfvolta.callbacks import TensorCores
from tfvolta.errors import AuditWarning, BridgeError
from tfvolta.footprint.memory import MemoryEstimate, estimate_memory
from tfvolta.script import footprint
from tfvolta.script.footprint import Request, look_at_model, look_at_script

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)


@pytest.fixture(autouse=True)
def _same_policy() -> Iterator[None]:
    yield
    BRIDGE.set_global_policy("float32")


class EnoughError(Exception):
    """Ends a fit before its first step."""


class Look(keras.callbacks.Callback):
    """Does something where the first step would have run."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.action = action
        self.found: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        BRIDGE.before_first_step(self.model, self._act)

    def _act(self, iterator: Any) -> None:
        self.found = self.action(self.model, iterator)
        raise EnoughError


def look(model: Any, data: Any, action: Callable[[Any, Any], Any], **arguments: Any) -> Any:
    before = [np.array(value) for value in model.get_weights()]
    callback = Look(action)
    with pytest.raises(EnoughError):
        model.fit(*data, verbose=0, callbacks=[callback], **arguments)
    assert all(np.array_equal(old, new) for old, new in zip(before, model.get_weights()))
    return callback.found


def traced(model: Any, data: Any, batch: Optional[int] = None, **arguments: Any) -> Any:
    return look(model, data, lambda model, iterator: BRIDGE.step_for_batch(model, iterator, batch), **arguments)


WIDTH, DEPTH = 256, 3


def dense(depth: int = DEPTH, **arguments: Any) -> Any:
    """Layers whose sizes are easy to add up: each keeps one activation of (batch, width)."""
    inputs = x = keras.Input((WIDTH,))
    for number in range(depth):
        x = layers.Dense(WIDTH, activation="relu", name=f"dense{number}")(x)
    model = keras.Model(inputs, x)
    model.compile("adam", "mse", **arguments)
    return model


def rows(count: int) -> Any:
    return np.zeros((count, WIDTH), "float32"), np.zeros((count, WIDTH), "float32")


def estimate(model: Any, found: Any, compiled: bool = False) -> MemoryEstimate:
    figures = BRIDGE.layer_figures(model, found.batch)
    return estimate_memory(found.step, BRIDGE.variable_bytes(model), figures, found.batch, compiled)


def test_each_layer_s_activation_waits_for_the_backward_pass() -> None:
    model = dense()
    found = traced(model, rows(8), 4096, batch_size=8)
    assert found.batch == 4096
    assert found.step.unknown <= 1
    memory = estimate(model, found)
    weights = 4 * DEPTH * (WIDTH**2 + WIDTH)
    assert memory.weights == weights
    assert 2 * weights <= memory.optimizer <= 2 * weights + 100
    one = 4 * 4096 * WIDTH  # an activation
    # One of each layer, the batch and its targets, and a few tensors of the backward pass.
    assert DEPTH * one <= memory.activations + memory.gradients <= (DEPTH + 5) * one
    held = {layer.layer: layer.held_bytes for layer in memory.layers}
    assert all(one <= held[f"dense{number}"] <= 2 * one for number in range(DEPTH - 1))


def test_activations_grow_with_the_batch_and_variables_do_not() -> None:
    model = dense()

    def both(model: Any, iterator: Any) -> Any:
        return [BRIDGE.step_for_batch(model, iterator, batch) for batch in (1024, 2048)]

    small, large = (estimate(model, found) for found in look(model, rows(8), both, batch_size=8))
    assert small.weights == large.weights and small.optimizer == large.optimizer
    ratio = (large.activations + large.gradients) / (small.activations + small.gradients)
    assert ratio == pytest.approx(2.0, rel=0.05)


def test_float16_halves_activations_and_adds_casts() -> None:
    plain = estimate(model := dense(), traced(model, rows(8), 4096, batch_size=8))
    BRIDGE.set_global_policy("mixed_float16")
    half = estimate(model := dense(), traced(model, rows(8), 4096, batch_size=8))
    assert half.weights == plain.weights
    assert half.casts == pytest.approx(plain.weights / 2, rel=0.02)
    assert half.activations == pytest.approx(plain.activations / 2, rel=0.35)


def test_xla_keeps_less_of_what_it_can_compute_again() -> None:
    inputs = x = keras.Input((WIDTH,))
    for _ in range(4):
        x = layers.LayerNormalization()(layers.Dense(WIDTH, activation="gelu")(x))
    model = keras.Model(inputs, x)
    model.compile("sgd", "mse")
    found = traced(model, rows(8), 1024, batch_size=8)
    assert estimate(model, found, compiled=True).peak < 0.8 * estimate(model, found).peak


def test_the_batch_of_the_data_is_taken_where_none_is_asked_for() -> None:
    assert traced(dense(1), rows(12), batch_size=12).batch == 12


def test_open_dimensions_are_those_of_the_first_batch() -> None:
    tokens = keras.Input((None,), dtype="int32")
    model = keras.Model(tokens, layers.Dense(1)(layers.GlobalAveragePooling1D()(layers.Embedding(10, 4)(tokens))))
    model.compile("sgd", "mse")
    signature = (tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None, 1), tf.float32))
    batch = (np.zeros((2, 7), "int32"), np.zeros((2, 1), "float32"))
    data = tf.data.Dataset.from_generator(lambda: iter([batch]), output_signature=signature)
    found = traced(model, (data,), 4)
    assert (found.batch, found.input_shapes, found.guessed) == (4, (7,), True)


def test_a_step_that_is_run_eagerly_cannot_be_looked_at() -> None:
    def refused(model: Any, iterator: Any) -> str:
        with pytest.raises(BridgeError) as error:
            BRIDGE.step_for_batch(model, iterator, 4)
        return str(error.value)

    assert "run_eagerly" in look(dense(1, run_eagerly=True), rows(4), refused)


def test_xla_s_own_figure_holds_variables_and_activations() -> None:
    model = dense(2, jit_compile=True)
    found = look(model, rows(8), lambda model, iterator: BRIDGE.compiled_memory(model, iterator, 512), batch_size=8)
    variables = 3 * 4 * 2 * (WIDTH**2 + WIDTH)
    batch = 2 * 4 * 512 * WIDTH
    assert found["parameters_bytes"] == pytest.approx(variables + batch, rel=0.01)
    assert found["temporaries_bytes"] >= 2 * 4 * 512 * WIDTH
    assert found["total_bytes"] <= 3 * (variables + batch)
    assert found["device"].startswith(("CPU", "GPU"))


def test_a_step_that_xla_does_not_compile_has_no_figure_of_xla_s() -> None:
    model = dense(1, jit_compile=False)
    found = look(model, rows(8), lambda model, iterator: BRIDGE.compiled_memory(model, iterator, 8), batch_size=8)
    assert found == {"reason": "XLA does not compile this step"}


SCRIPT = """
import sys
import numpy as np
import tensorflow as tf

keras = tf.keras
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(30, name="first"), keras.layers.Dense(8)])
model.compile("sgd", "mse")
try:
    model.fit(np.zeros((8, 16)), np.zeros((8, 8)), batch_size=int(sys.argv[1]), verbose=0)
except Exception:
    raise SystemExit("the script held up the end")
raise SystemExit("it was trained")
"""


def test_a_script_is_looked_at_and_not_trained(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    overrides = ("mixed_precision.policy=mixed_float16", "strategy.kind=mirrored")
    request = Request(str(script), ("4",), overrides=overrides, directory=str(tmp_path), batch=16, compare_half=True)
    found = look_at_script(request)
    assert (found["stack"], found["batch"], found["parameters"]) == (STACK, 16, 16 * 30 + 30 + 30 * 8 + 8)
    assert found["compared"]["plain"]["batch"] == 8
    assert found["memory"]["plain"]["reduction"] == 4 * found["parameters"]  # of the strategy that it will have
    changes = {row["layer"]: row["change"] for row in found["tensor_cores"]["rows"]}
    assert changes["first"] == "30 to 32 units (classes or vocabulary: the added ones are never a target)"
    evidence = json.loads(pathlib.Path(found["evidence"]).read_text(encoding="utf-8"))
    assert evidence["status"] == "completed"
    assert evidence["measurements"]["estimated_memory"]["plain"]["batch"] == 16
    assert not evidence["fits"]


def test_a_script_that_does_not_train_is_said(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('nothing')", encoding="utf-8")
    with pytest.raises(BridgeError, match=r"calls model\.fit"):
        look_at_script(Request(str(script), directory=str(tmp_path)))


def test_the_process_answers_in_a_file(tmp_path: pathlib.Path) -> None:
    asked, answer = tmp_path / "asked.json", tmp_path / "answer.json"
    asked.write_text(json.dumps({"script": str(tmp_path / "model.keras"), "memory": False, "batch": 24}))
    keras.Sequential([keras.Input((16,)), layers.Dense(30)]).save(tmp_path / "model.keras")
    assert footprint.main([str(asked), str(answer)]) == 0
    found = json.loads(answer.read_text())
    assert (found["batch"], found["tensor_cores"]["multiply_adds"]) == (24, 24 * 16 * 30)
    assert look_at_model(Request(str(tmp_path / "model.keras")))["batch"] == 8
    asked.write_text(json.dumps({"script": str(tmp_path / "train.py"), "overrides": ["xla.jit=sometimes"]}))
    assert footprint.main([str(asked), str(answer)]) == 2
    assert "xla.jit" in answer.read_text()


def test_a_fit_in_float16_warns_of_what_tensor_cores_serve_badly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_cores, "LEAST_MULTIPLY_ADDS", 0)  # so that a small model will do
    BRIDGE.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.Input((16,)), layers.Dense(30), layers.Dense(8, dtype="float32")])
    model.compile("sgd", "mse")
    callback = TensorCores()
    data = {"batch_size": 8, "verbose": 0, "callbacks": [callback]}
    with pytest.warns(AuditWarning, match="30 to 32 units"):
        model.fit(np.zeros((8, 16)), np.zeros((8, 8)), **data)
    assert callback.audit is not None and callback.audit.batch == 8
    assert callback.audit.served_percent == 0.0


def test_a_fit_in_float32_is_left_alone() -> None:
    model = keras.Sequential([keras.Input((16,)), layers.Dense(30)])
    model.compile("sgd", "mse")
    callback = TensorCores()
    model.fit(np.zeros((8, 16)), np.zeros((8, 30)), batch_size=8, verbose=0, callbacks=[callback])
    assert callback.audit is None
    assert load_config().monitor.tensor_cores
