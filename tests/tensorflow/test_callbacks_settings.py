"""The callbacks that carry settings, seen in what the train step really does."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.callbacks_models import KINDS, compiled, dataset, rows
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import (
    ApplyPlan,
    CompileLedger,
    CudnnWorkspace,
    DeviceMemory,
    LossScaleMonitor,
    MemoryGrowth,
    MixedPrecision,
    TensorCores,
    Throughput,
    XlaJit,
    session_callbacks,
)
from tfvolta.callbacks.step_memory import StepMemory
from tfvolta.callbacks.validation_memory import ValidationMemory
from tfvolta.config import load_config
from tfvolta.errors import ConfigError
from tfvolta.outcome import Status
from tfvolta.session import Origin, Session


def half_products(model: Any) -> int:
    """Matrix products with float16 inputs in the traced train functions."""
    graph = bridge_for(model).train_graph(model)
    assert graph is not None
    return int(graph.count("MatMul", "float16"))


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision_of_every_kind_of_model(kind: str) -> None:
    model = compiled(kind)
    monitor = LossScaleMonitor()
    history = model.fit(dataset(), epochs=3, verbose=0, callbacks=[MixedPrecision(initial_scale=64.0), monitor])
    assert half_products(model) > 0
    assert {tf.as_dtype(weight.dtype).name for weight in model.weights} == {"float32"}
    if kind != "own_step":  # Keras 3 reports its own tracker instead of the step's loss
        assert history.history["loss"][-1] < history.history["loss"][0]
    assert monitor.summary()["scale"] == 64.0
    assert (monitor.summary()["attempted"], monitor.summary()["skipped"]) == (33, 0)


def test_mixed_precision_of_a_model_that_was_trained_before() -> None:
    model = compiled()
    model.fit(dataset(), verbose=0)
    assert half_products(model) == 0
    callback = MixedPrecision(initial_scale=128.0)
    for fits in (1, 2):
        model.fit(dataset(), verbose=0, callbacks=[callback])
        assert half_products(model) > 0
        assert int(model.optimizer.iterations) == 11 * (1 + fits)
        assert bridge_for(model).loss_scale(model.optimizer).scale == 128.0


def test_one_callback_serves_two_models() -> None:
    callback = MixedPrecision()
    for kind in ("functional", "subclassed"):
        model = compiled(kind)
        model.fit(dataset(), verbose=0, callbacks=[callback])
        assert half_products(model) > 0


def test_float32_layers_and_a_fixed_scale() -> None:
    products = []
    for float32_layers in ([], ["kept"]):
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(4, name="kept"), keras.layers.Dense(4), keras.layers.Dense(1)]
        )
        model.compile("adam", "mse", jit_compile=False)
        monitor = LossScaleMonitor()
        callback = MixedPrecision(float32_layers=float32_layers, fixed_scale=64.0)
        model.fit(dataset(), verbose=0, callbacks=[callback, monitor])
        products.append(half_products(model))
        assert monitor.summary()["scale"] == 64.0
    assert products[0] > products[1] > 0


@pytest.mark.parametrize("value", [True, "auto", False, "off"])
def test_xla(value: Any) -> None:
    model = compiled(jit_compile=None if not KERAS3 else "auto")
    callback = XlaJit(value, strict=value is not False)
    model.fit(dataset(), epochs=1, verbose=0, callbacks=[callback])
    graph = bridge_for(model).train_graph(model)
    assert graph is not None
    assert graph.must_compile == (value is True)  # auto: XLA gains nothing for a small model on a CPU
    assert all(ending.outcome.message for ending in callback.session.endings.values())


def test_xla_of_a_model_that_was_trained_without() -> None:
    model = compiled()
    model.fit(dataset(), verbose=0)
    model.fit(dataset(), verbose=0, callbacks=[XlaJit()])
    assert bridge_for(model).train_graph(model).must_compile


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_any_order_in_the_list(order: tuple[int, ...]) -> None:
    throughput = Throughput()
    callbacks = [MixedPrecision(), XlaJit(), throughput]
    model = compiled()
    model.fit(dataset(), verbose=0, callbacks=[callbacks[index] for index in order])
    assert half_products(model) > 0
    assert bridge_for(model).train_graph(model).must_compile
    assert throughput.summary()["steps"] == 11


def test_with_validation_and_several_steps_per_execution() -> None:
    model = compiled(steps_per_execution=4)
    throughput, monitor = Throughput(), LossScaleMonitor()
    model.fit(
        dataset(), epochs=2, verbose=0, validation_data=dataset(8), callbacks=[MixedPrecision(), throughput, monitor]
    )
    assert half_products(model) > 0
    assert [epoch["steps"] for epoch in throughput.summary()["epochs"]] == [11, 11]
    assert monitor.summary()["attempted"] == 22


def test_overflow_steps_are_counted_alike_on_every_keras() -> None:
    """Four batches whose gradients are infinite: attempted 4, applied 0, skipped 4."""
    x, y = rows(16)
    model = compiled()
    before = [np.array(weight) for weight in model.get_weights()]
    monitor = LossScaleMonitor(every_batches=2)
    x[:, 0] = np.inf
    callbacks = [MixedPrecision(initial_scale=64.0), monitor]
    model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
    summary = monitor.summary()
    assert {key: summary[key] for key in ("attempted", "applied", "skipped")} == {
        "attempted": 4,
        "applied": 0,
        "skipped": 4,
    }
    assert summary["scale"] == 4.0
    assert [record["attempted"] for record in summary["records"]] == [2, 4, 4]
    for weight, former in zip(model.get_weights(), before):
        np.testing.assert_array_equal(weight, former)


def test_environment_and_device_settings_on_a_cpu_say_not_applicable() -> None:
    callbacks = [MemoryGrowth(), CudnnWorkspace(512)]
    compiled().fit(dataset(), verbose=0, callbacks=callbacks)
    for callback in callbacks:
        statuses = {ending.outcome.status for ending in callback.session.endings.values()}
        assert statuses == {Status.NOT_APPLICABLE}


@pytest.mark.parametrize(
    "make",
    [
        lambda: MixedPrecision("mixed_float15"),
        lambda: MixedPrecision(growth_steps=0),
        lambda: MixedPrecision(fixed_scale=-1.0),
        lambda: XlaJit("always"),
        lambda: CudnnWorkspace(0),
        lambda: CudnnWorkspace("512 MB"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked_when_the_callback_is_made(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected"):
        make()


def full_plan(directory: pathlib.Path, record: bool = False) -> Session:
    config = load_config(
        run={"directory": str(directory)},
        mixed_precision={"policy": "mixed_float16"},
        xla={"jit": "model"},
        monitor={"throughput": True, "memory": True, "loss_scale": True},
    )
    return Session(config, origin=Origin(record=record))


def test_a_full_plan(tmp_path: pathlib.Path) -> None:
    session = full_plan(tmp_path, record=True)
    callbacks = session_callbacks(session)
    monitors = [Throughput, CompileLedger, LossScaleMonitor, TensorCores, DeviceMemory, StepMemory, ValidationMemory]
    assert [type(callback) for callback in callbacks] == [ApplyPlan, *monitors]
    model = compiled()
    for _ in range(2):
        model.fit(dataset(), epochs=2, verbose=0, validation_data=dataset(8), callbacks=list(callbacks))
    session.close()
    assert half_products(model) > 0
    assert bridge_for(model).train_graph(model).must_compile
    outcomes = {name: ending.outcome.status for name, ending in session.endings.items()}
    assert {outcomes["jit"], outcomes["retrofit"], outcomes["loss_scale"]} == {Status.APPLIED}, outcomes
    text = next(tmp_path.rglob("evidence.json")).read_text()
    assert '"throughput"' in text and '"loss_scale"' in text and '"memory"' in text


def test_fits_in_a_row_trace_and_compile_once(tmp_path: pathlib.Path) -> None:
    """Settings that are in force already leave the train function alone."""
    callbacks = session_callbacks(full_plan(tmp_path))
    model = compiled()
    model.fit(dataset(), verbose=0, callbacks=list(callbacks))
    function, traces = model.train_function, bridge_for(model).trace_count(model)
    for given in (callbacks, [], callbacks):
        model.fit(dataset(), verbose=0, callbacks=list(given))
    assert model.train_function is function
    assert bridge_for(model).trace_count(model) == traces


def test_xla_is_set_again_after_someone_changed_it() -> None:
    """The attribute alone says nothing about the function that Keras 3 made before."""
    model = compiled()
    callback = XlaJit()
    model.fit(dataset(), verbose=0, callbacks=[callback])
    model.jit_compile = False
    model.train_function = None
    model.fit(dataset(), verbose=0)
    model.jit_compile = True
    assert not bridge_for(model).train_graph(model) or not bridge_for(model).train_graph(model).must_compile
    model.fit(dataset(), verbose=0, callbacks=[callback])
    assert bridge_for(model).train_graph(model).must_compile


def test_monitors_that_are_off_are_not_made(tmp_path: pathlib.Path) -> None:
    off = dict.fromkeys(("throughput", "memory", "tensor_cores", "compilations"), False)
    config = load_config(monitor={**off, "loss_scale": True, "warmup_steps": 5}, xla={"jit": "off"})
    session = Session(config, origin=Origin(record=False))
    assert [type(callback) for callback in session_callbacks(session)] == [ApplyPlan, LossScaleMonitor]


def test_saved_during_and_after_a_fit_loads_in_plain_keras(tmp_path: pathlib.Path) -> None:
    """A process that never imports tfvolta loads it and trains on, with optimiser state and loss scale."""
    model = compiled("functional")
    during = tmp_path / "during.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(str(during))
    model.fit(dataset(), epochs=2, verbose=0, callbacks=[MixedPrecision(initial_scale=64.0), checkpoint])
    after = tmp_path / "after.keras"
    model.save(after)
    code = f"""
import sys, numpy as np, tensorflow as tf
import {keras.__name__} as keras
for path in {[str(during), str(after)]!r}:
    model = keras.models.load_model(path)
    optimizer = model.optimizer
    scale = float(optimizer.{"dynamic_scale" if KERAS3 else "loss_scale"})
    print(type(optimizer).__name__.startswith("LossScaleOptimizer"), int(optimizer.iterations), scale)
    model.fit(np.ones((8, 8), "float32"), np.ones((8, 1), "float32"), verbose=0)
assert not [name for name in sys.modules if name.startswith("tfvolta")]
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.split("\n")[:2] == ["True 22 64.0"] * 2, done.stderr
