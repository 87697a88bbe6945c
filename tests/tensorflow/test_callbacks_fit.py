"""Keras's loop and tfvolta's monitors: hooks, counts and conversions, on the Keras of this process."""

from __future__ import annotations

import importlib
import time
from typing import Any, Callable

import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.callbacks_models import KINDS, compiled, dataset, rows
from tfvolta.callbacks.base import Callback
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor
from tfvolta.callbacks.throughput import Throughput

HOOKS = [
    *(f"on_{mode}_{end}" for mode in ("train", "test", "epoch") for end in ("begin", "end")),
    *(f"on_{mode}_batch_{end}" for mode in ("train", "test") for end in ("begin", "end")),
]


def recorder(base: type) -> Any:
    """A callback of a class that writes down each hook and its number."""
    seen: list[tuple[str, Any]] = []

    def hook(name: str) -> Callable[..., None]:
        def record(self: Any, *number: Any, logs: Any = None) -> None:
            seen.append((name, number[0] if number and isinstance(number[0], int) else None))

        return record

    callback = type("Recorder", (base,), {name: hook(name) for name in HOOKS})()
    callback.seen = seen
    return callback


def monitors() -> tuple[Throughput, LossScaleMonitor, DeviceMemory]:
    return Throughput(), LossScaleMonitor(), DeviceMemory()


def test_hooks_are_called_as_those_of_a_keras_callback() -> None:
    ours, theirs = recorder(Callback), recorder(keras.callbacks.Callback)
    model = compiled(steps_per_execution=2)
    for _ in range(2):
        model.fit(dataset(), epochs=2, verbose=0, validation_data=dataset(8), callbacks=[ours, theirs])
    assert ours.seen == theirs.seen
    assert len([name for name, _ in ours.seen if name == "on_train_batch_end"]) == 2 * 2 * 6
    assert ours.params["epochs"] == 2
    assert ours.model is model


@pytest.mark.parametrize("kind", KINDS)
def test_monitors_serve_every_kind_of_model(kind: str) -> None:
    throughput, scale, memory = monitors()
    model = compiled(kind)
    for _ in range(2):
        model.fit(dataset(), epochs=2, verbose=0, validation_data=dataset(8), callbacks=[throughput, scale, memory])
        summary = throughput.summary()
        assert [epoch["steps"] for epoch in summary["epochs"]] == [11, 11]
        assert [epoch["steps_source"] for epoch in summary["epochs"]] == ["calls"] * 2
        assert [epoch["examples"] for epoch in summary["epochs"]] == ([None] * 2 if kind == "own_step" else [44] * 2)
        assert summary["step_seconds_median"] > 0
        assert scale.summary()["applied"] == 22
        assert scale.summary()["scale"] is None
        assert memory.summary()["peak_bytes"] == {}
        assert "no GPU" in memory.unavailable["all"]
    assert throughput.summary()["fit"] == 2


def test_one_set_of_monitors_serves_several_models() -> None:
    callbacks = monitors()
    for kind in ("functional", "sequential"):
        compiled(kind).fit(dataset(20), verbose=0, callbacks=list(callbacks))
        assert callbacks[0].summary()["steps"] == 5


def test_a_frozen_model() -> None:
    """No weight changes, and the batches are counted all the same."""
    throughput, scale, memory = monitors()
    model = compiled()
    model.layers[0].trainable = False
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    model.fit(dataset(), verbose=0, callbacks=[throughput, scale, memory])
    assert throughput.summary()["steps"] == 11


def test_arrays_with_batch_size_and_validation_split() -> None:
    throughput = Throughput()
    x, y = rows(50)
    compiled().fit(x, y, batch_size=8, epochs=2, validation_split=0.2, verbose=0, callbacks=[throughput])
    assert [epoch["examples"] for epoch in throughput.summary()["epochs"]] == [40, 40]
    assert throughput.summary()["examples_per_second"] > 0


# Keras 2 refuses data of unknown size with steps_per_execution.
@pytest.mark.parametrize("size_known", [True, False] if KERAS3 else [True])
def test_steps_per_execution_that_does_not_divide(size_known: bool) -> None:
    """Eleven batches in calls of four: the steps equal the optimiser's, whatever number Keras gives the last batch."""
    throughput, scale, _ = monitors()
    model = compiled(steps_per_execution=4)
    data = dataset() if size_known else dataset().filter(lambda x, y: True)
    model.fit(data, epochs=2, verbose=0, callbacks=[throughput, scale])
    assert int(model.optimizer.iterations) == 22
    assert [epoch["steps"] for epoch in throughput.summary()["epochs"]] == [11, 11]
    assert [epoch["examples"] for epoch in throughput.summary()["epochs"]] == [44, 44]
    assert scale.summary()["applied"] == 22


def wide(jit: bool) -> Any:
    """A model whose compilation takes much longer than its step."""
    layers = [keras.layers.Dense(64, activation="relu") for _ in range(8)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=jit)
    return model


@pytest.mark.parametrize(
    ("jit", "drop_remainder", "compiled_steps"),
    [(True, False, [(0, 0), (0, 2)]), (True, True, [(0, 0)]), (False, False, [(0, 0)])],
)
def test_compile_steps_are_marked_and_left_out(
    jit: bool, drop_remainder: bool, compiled_steps: list[tuple[int, int]]
) -> None:
    """40 rows in batches of 16 leave a remainder of 8, which XLA compiles once more."""
    throughput = Throughput(warmup_steps=0)
    data = tf.data.Dataset.from_tensor_slices(rows(40)).batch(16, drop_remainder=drop_remainder)
    wide(jit).fit(data, epochs=4, verbose=0, callbacks=[throughput])
    summary = throughput.summary()
    assert [(step["epoch"], step["step"]) for step in summary["compile_steps"]] == compiled_steps
    assert all(step["seconds"] > 5 * summary["step_seconds_median"] for step in summary["compile_steps"])
    assert summary["timed_steps"] == summary["steps"] - len(compiled_steps)


def conversions(monkeypatch: pytest.MonkeyPatch, callbacks: list[Any], steps: int) -> tuple[int, int]:
    """Log conversions and device reads of an epoch of so many steps on a model that is already traced."""
    package = {"keras3": "keras.src.utils.python_utils", "keras2": "keras.src.utils.tf_utils"}
    name = "pythonify_logs" if KERAS3 else "sync_to_numpy_or_python_type"
    module = importlib.import_module(package.get(STACK, "tf_keras.src.utils.tf_utils"))
    eager = importlib.import_module("tensorflow.python.framework.ops")._EagerTensorBase
    model = compiled()
    data = dataset(4 * steps).cache()
    model.fit(data, verbose=0)
    counts = {"conversions": 0, "reads": 0}

    def counted(key: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            counts[key] += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(module, name, counted("conversions", getattr(module, name)))
        patch.setattr(eager, "_numpy", counted("reads", eager._numpy))
        model.fit(data, verbose=0, callbacks=callbacks)
    return counts["conversions"], counts["reads"]


def test_monitors_add_no_conversion_and_no_read_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [conversions(monkeypatch, [], steps) for steps in (10, 30)]
    with_monitors = [conversions(monkeypatch, list(monitors()), steps) for steps in (10, 30)]
    assert [number for number, _ in with_monitors] == [number for number, _ in without]
    assert with_monitors[1][1] - with_monitors[0][1] == without[1][1] - without[0][1]


@pytest.mark.skipif(KERAS3, reason="Keras 3 converts the logs of every step by itself")
def test_conversions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter sees what one unflagged callback costs, so the test above can fail."""

    class Unflagged(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...

    flagged = conversions(monkeypatch, list(monitors()), 10)
    unflagged = conversions(monkeypatch, [*monitors(), Unflagged()], 10)
    assert unflagged[0] == flagged[0] + 10
    assert unflagged[1] >= flagged[1] + 10


def test_figures_agree_with_a_plain_clock() -> None:
    """The input sleeps in every step, so the step takes at least as long."""
    pause = 0.02

    def slow(x: Any, y: Any) -> Any:
        time.sleep(pause)
        return x, y

    def wait(x: Any, y: Any) -> Any:
        x, y = tf.numpy_function(slow, [x, y], [tf.float32, tf.float32])
        return tf.ensure_shape(x, [None, 8]), tf.ensure_shape(y, [None, 1])

    throughput = Throughput()
    compiled().fit(dataset(64).map(wait), verbose=0, callbacks=[throughput])
    summary = throughput.summary()
    assert summary["step_seconds_median"] > 0.8 * pause
    assert 0 < summary["examples_per_second"] < 1.25 * 4 / pause
