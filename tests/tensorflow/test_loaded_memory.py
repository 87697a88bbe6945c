"""What XLA says of the step that a fit has compiled, without compiling it again; and what a trace says."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Iterator

import numpy as np
import pytest
from tensorflow.python.profiler import profiler_v2

from tests.stack import STACK, keras, tf
from tfvolta.bridge import bridge_for_stack, loaded_memory, short_profile
from tfvolta.bridge.layer_calls import CallRecord
from tfvolta.bridge.short_profile import ProfilerBusyError
from tfvolta.bridge.step_graph import StepReader, reserve_bytes
from tfvolta.callbacks import device_memory
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.callbacks.step_memory import StepMemory

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
ROOT = pathlib.Path(__file__).parents[2]
WIDTH, ROWS = 64, 32


def dense(**arguments: Any) -> Any:
    model = keras.Sequential([keras.Input((WIDTH,)), layers.Dense(WIDTH, activation="relu"), layers.Dense(WIDTH)])
    model.compile("adam", "mse", **arguments)
    return model


def fit(model: Any, *callbacks: Any, rows: int = 4 * ROWS, epochs: int = 1) -> None:
    data = np.zeros((rows, WIDTH), "float32")
    model.fit(data, data, batch_size=ROWS, epochs=epochs, verbose=0, callbacks=list(callbacks))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU whose allocator counts, in place of one."""
    peaks = iter([9 * 2**20, *[2**20] * 50])
    monkeypatch.setattr(device_memory, "_gpus", lambda: ["GPU:0"])
    monkeypatch.setattr(DeviceMemory, "_start_anew", lambda self: None)
    figures = lambda self, device: {"current_bytes": 4096, "peak_bytes": next(peaks)}  # noqa: E731
    monkeypatch.setattr(DeviceMemory, "_info", figures)
    yield


def test_the_program_of_a_compiled_step_is_found_with_its_buffers() -> None:
    model = dense(jit_compile=True)
    fit(model)
    found = BRIDGE.loaded_memory(model)
    assert found.reason == found.refused == "" and found.programs >= 1
    variables = BRIDGE.variable_bytes(model)
    batch = 2 * 4 * ROWS * WIDTH
    assert found.buffers.parameters == pytest.approx(variables.weights + variables.optimizer + batch, rel=0.01)
    assert found.buffers.temporaries >= 4 * ROWS * WIDTH


def test_each_model_finds_its_own_program() -> None:
    small, large = dense(jit_compile=True), dense(jit_compile=True)
    fit(small)
    data = np.zeros((512, WIDTH), "float32")
    large.fit(data, data, batch_size=512, verbose=0)
    assert BRIDGE.loaded_memory(small).buffers.total < BRIDGE.loaded_memory(large).buffers.total


def test_nothing_is_compiled_or_traced_for_it(counted: None) -> None:
    model = dense(jit_compile=True)
    memory = DeviceMemory()
    step = StepMemory(memory)
    traces: list[int] = []
    counter = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: traces.append(BRIDGE.trace_count(model)))
    fit(model, memory, step, counter, epochs=2)
    assert traces[0] == traces[1]
    summary = step.summary()
    (figures,) = summary["figures"]
    assert figures["source"] == "XLA's buffer assignment"
    assert "run_step" in figures["program"] or "one_step" in figures["program"]
    assert (figures["first_step_peak_bytes"], figures["steady_peak_bytes"]) == (9 * 2**20, 2**20)
    assert figures["error_percent"] == pytest.approx(100 * (figures["predicted_peak_bytes"] / 2**20 - 1), abs=0.01)
    assert "1.0 MiB measured on GPU:0" in summary["peak"]


def test_a_step_that_is_not_compiled_is_foretold_by_its_trace(counted: None) -> None:
    model = dense(jit_compile=False)
    memory = DeviceMemory()
    step = StepMemory(memory)
    fit(model, memory, step)
    assert step.peak is not None and step.peak.source == "the traced step"
    one = 4 * ROWS * WIDTH
    assert 2 * one <= step.peak.parts["tensors"] <= 10 * one + 4 * 2 * WIDTH * (WIDTH + 1)
    assert step.peak.parts["scratch"] == 0


def test_one_call_alone_has_no_peak_but_that_of_the_first_step(counted: None) -> None:
    memory = DeviceMemory()
    step = StepMemory(memory)
    fit(dense(jit_compile=False), memory, step, rows=ROWS)
    assert step.peak is not None and step.peak.steady is None and "no measured peak" in str(step.peak)


def test_without_a_gpu_a_step_that_is_not_compiled_is_left_alone() -> None:
    memory = DeviceMemory()
    step = StepMemory(memory)
    fit(dense(jit_compile=False), memory, step)
    assert step.peak is None and "no GPU" in step.summary()["peak"]
    assert "no GPU" in step.summary()["fragmentation"]


def test_training_goes_on_whatever_the_look_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: Any) -> Any:
        raise RuntimeError("another TensorFlow")

    monkeypatch.setattr(type(BRIDGE), "loaded_memory", lambda self, model: broken(model))
    step = StepMemory(DeviceMemory())
    fit(dense(jit_compile=True), step)
    assert "RuntimeError: another TensorFlow" in step.summary()["peak"]


def test_a_kernel_that_is_chosen_after_the_trace_is_said() -> None:
    if STACK == "keras3":
        pytest.skip("Keras 3 chooses before it traces")
    model = keras.Sequential([keras.Input((4, 8)), layers.LSTM(8)])
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(np.zeros((4, 4, 8)), np.zeros((4, 8)), verbose=0)
    assert "leaves the choice" in BRIDGE.traced_memory(model, 4).reason


def test_sizes_that_stay_open_are_said() -> None:
    model = dense(jit_compile=False)
    signature = tf.TensorSpec((None, WIDTH), tf.float32)
    batch = np.zeros((ROWS, WIDTH), "float32")
    data = tf.data.Dataset.from_generator(lambda: iter([(batch, batch)]), output_signature=(signature, signature))
    model.fit(data, verbose=0)
    assert "leaves open" in BRIDGE.traced_memory(model, None).reason
    filled = BRIDGE.traced_memory(model, ROWS)
    if STACK == "keras3":  # a trace of open shapes leaves those of variables open, too
        assert "leaves open" in filled.reason
    else:
        assert filled.held >= 4 * ROWS * WIDTH
    assert "no trace" in BRIDGE.traced_memory(dense(run_eagerly=True), ROWS).reason


def test_somebody_else_s_profile_is_left_alone(tmp_path: Any) -> None:
    model = dense(jit_compile=True)
    fit(model)
    tf.profiler.experimental.start(str(tmp_path))
    try:
        found = BRIDGE.loaded_memory(model)
    finally:
        tf.profiler.experimental.stop()
    assert found.buffers is None and "another profile" in found.refused
    assert list(tmp_path.rglob("*.xplane.pb"))
    assert BRIDGE.loaded_memory(model).buffers is not None


def test_the_profiler_keeps_its_session_where_it_is_looked_for(tmp_path: Any) -> None:
    assert profiler_v2._profiler is None
    tf.profiler.experimental.start(str(tmp_path))
    try:
        assert profiler_v2._profiler is not None
        with pytest.raises(ProfilerBusyError):
            short_profile.short_profile(lambda: None)
    finally:
        tf.profiler.experimental.stop(save=False)


ASK = """
import json
import tensorflow as tf
from tfvolta.bridge.short_profile import short_profile
from tfvolta.footprint.profile import memory_events

def ask():
    tf.zeros((300, 300))

print(json.dumps(memory_events(short_profile(ask))))
"""


@pytest.mark.skipif(STACK == "tf_keras", reason="the TensorFlow of keras3")
def test_a_pool_describes_itself_when_it_is_asked() -> None:
    """With oneDNN the host has a pool of the same kind as a GPU has."""
    environment = {
        **os.environ,
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "0",
        "TF_ENABLE_ONEDNN_OPTS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=240)
    events = json.loads(done.stdout.splitlines()[-1])
    (first, *_) = [event for event in events if event["requested_bytes"] == 4 * 300 * 300]
    assert 0.0 <= float(first["fragmentation"]) <= 1.0
    assert first["bytes_allocated"] >= 4 * 300 * 300 and first["bytes_available"] > first["bytes_allocated"]
    assert first["peak_bytes_in_use"] >= first["bytes_allocated"] and first["allocator_name"]


def test_marked_functions_are_named_as_programs() -> None:
    model = dense(jit_compile=True)
    fit(model)
    names = [loaded_memory._as_program(name) for name in loaded_memory.marked_names(model)]
    assert any("step" in name for name in names)
    assert loaded_memory._is_one_of("a_inference_run_step_740__.5(94)", ["inference_run_step_740"])
    assert not loaded_memory._is_one_of("a_inference_run_step_7401__.5(94)", ["inference_run_step_740"])


def test_cudnn_s_reserve_is_known_from_the_operation() -> None:
    def step(x: Any, h: Any, params: Any, lengths: Any) -> Any:
        return tf.raw_ops.CudnnRNNV3(
            input=x, input_h=h, input_c=h, params=params, sequence_lengths=lengths, rnn_mode="lstm", is_training=True
        )

    shapes = [([16, 4, 8], tf.float32), ([1, 4, 32], tf.float32), ([99], tf.float32), ([4], tf.int32)]
    graph = tf.function(step).get_concrete_function(*(tf.TensorSpec(*each) for each in shapes)).graph
    (operation,) = [each for each in graph.get_operations() if each.type == "CudnnRNNV3"]
    assert [reserve_bytes(tensor) for tensor in operation.outputs] == [None, None, None, 16 * 4 * 32 * 5 * 4, 0]
    step = StepReader(CallRecord(lambda layer: False), {}).read(graph)
    assert [each.scratch for each in step.operations if each.kind == "CudnnRNNV3"] == [16 * 4 * 32 * 2 * 4]


def test_what_grappler_takes_out_of_a_step_takes_no_memory_in_it() -> None:
    """Tensors of one value become constants; a transposition that undoes another one is its input."""

    def step(x: Any) -> Any:
        back = tf.transpose(tf.identity(tf.transpose(x, (1, 0, 2))), (1, 0, 2))
        other = tf.transpose(tf.transpose(x, (1, 2, 0)), (1, 2, 0))
        return tf.sin(back) + tf.zeros((8, 4, 2)), tf.cos(other) + tf.fill((2, 8, 4), x[0, 0, 0])

    graph = tf.function(step).get_concrete_function(tf.TensorSpec([8, 4, 2])).graph
    read = StepReader(CallRecord(lambda layer: False), {}).read(graph)
    fills = [read.sizes[each.outputs[0]] for each in read.operations if each.kind == "Fill"]
    assert read.constants in (0, 256) and sum(fills) == 256  # Keras 2's TensorFlow makes a constant of zeros at once
    kinds = {each.kind: each for each in read.operations}
    assert sum(each.kind == "Transpose" for each in read.operations) == 3
    (argument,) = [each.outputs[0] for each in read.operations if each.kind == "Placeholder"]
    maker = {tensor: each for each in read.operations for tensor in each.outputs}
    assert maker[kinds["Sin"].inputs[0]].inputs[0] == argument
    assert maker[kinds["Cos"].inputs[0]].kind == "Transpose"
