"""The models, data and single operations that measure.py times."""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any, Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import device_trace
from benchmarks.peers import keras_models

BATCHES = 4  # different batches, which come again and again


def resnet50(keras: Any, tf: Any, row: dict[str, Any]) -> tuple[Any, Any, int, int, int]:
    """ResNet-50, 224 px, batch 256, SGD with momentum: model, data, batch, steps an epoch, epochs."""
    size, batch, steps, epochs = (32, 4, 3, 2) if row["quick"] else (224, 256, 15, 3)
    inputs = keras.Input((size, size, 3), dtype="uint8")
    x = keras.layers.Rescaling(1 / 64, -2.0)(inputs)
    net = keras.applications.ResNet50(
        weights=None, input_shape=(size, size, 3), classes=1000, classifier_activation=None
    )
    model = keras.Model(inputs, net(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, jit_compile=False)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (BATCHES, batch, size, size, 3), dtype="uint8")
    return (
        model,
        repeated(tf, images, generator.integers(0, 1000, (BATCHES, batch)).astype("int32")),
        batch,
        steps,
        epochs,
    )


def lstm(keras: Any, tf: Any, row: dict[str, Any]) -> tuple[Any, Any, int, int, int]:
    """Two LSTM layers of 1024, 128 tokens, batch 256, Adam; ``floats`` are vectors in place of embedded tokens."""
    units, time_steps, words, batch, steps, epochs = (
        (16, 8, 50, 4, 3, 2) if row["quick"] else (1024, 128, 10000, 256, 30, 3)
    )
    model = keras_models.sequences(keras, (2, units, time_steps), words, 1000, floats=bool(row.get("floats")))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=False)
    generator = np.random.default_rng(0)
    if row.get("floats"):
        features = generator.standard_normal((BATCHES, batch, time_steps, units), dtype="float32").astype("float16")
    else:
        features = generator.integers(0, words, (BATCHES, batch, time_steps)).astype("int32")
    return (
        model,
        repeated(tf, features, generator.integers(0, 1000, (BATCHES, batch)).astype("int32")),
        batch,
        steps,
        epochs,
    )


def repeated(tf: Any, features: Any, labels: Any) -> Any:
    """Batches that lie in host memory, again and again."""
    return tf.data.Dataset.from_tensor_slices((features, labels)).cache().repeat().prefetch(2)


def operations(model: Any) -> dict[str, int]:
    """What decides in the traced train step: operations of the kernels, and those that no GPU has."""
    from tfvolta.bridge import graphs

    graph = graphs.summarize(model)
    words = ("FusedBatchNorm", "Cudnn", "TensorScatterUpdate", "SquaredDifference", "While")
    if graph is None:
        return {}
    return {name: count // graph.traces for name, count in graph.operations.items() if name.startswith(words)}


def profile(model: Any, data: Any, steps: int = 3) -> dict[str, Any]:
    """What TensorFlow's profiler saw of some steps; see ``benchmarks.device_trace``."""
    with tempfile.TemporaryDirectory() as folder:
        device_trace.start(folder)
        model.fit(data, steps_per_epoch=steps, verbose=0)
        return device_trace.stop(folder, steps)


# -------------------------------------------------------------------------------------------------- single operations


def timed(run: Callable[[], Any], quick: bool) -> float:
    """Median milliseconds of a call."""
    for _ in range(3):
        np.asarray(run())
    found = []
    for _ in range(2 if quick else 5):
        began = time.perf_counter()
        for _ in range(1 if quick else 10):
            last = run()
        np.asarray(last)
        found.append((time.perf_counter() - began) / (1 if quick else 10))
    return round(1000 * statistics.median(found), 3)


def sequences(quick: bool) -> dict[str, Any]:
    """cuDNN's operation by version and layout: one LSTM of 1024 over 128 steps, batch 256, forward and backward."""
    import tensorflow as tf

    from tfvolta.bridge import cudnn_sequence

    units, steps, batch = (8, 4, 2) if quick else (1024, 128, 256)
    found: dict[str, Any] = {}

    def plain(x: Any, states: Any, vector: Any, time_major: bool) -> Any:
        length = tf.fill([batch], steps)
        states = [tf.expand_dims(each, 0 if time_major else 1) for each in states]
        result = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(x, (1, 0, 2)) if time_major else x,
            input_h=states[0],
            input_c=states[1],
            params=vector,
            sequence_lengths=length,
            rnn_mode="lstm",
            is_training=True,
            time_major=time_major,
        )
        return tf.transpose(result.output, (1, 0, 2)) if time_major else result.output

    def without_lengths(operation: Any, x: Any, states: Any, vector: Any) -> Any:
        states = [tf.expand_dims(each, 0) for each in states]
        x = tf.transpose(x, (1, 0, 2))
        result = operation(
            input=x, input_h=states[0], input_c=states[1], params=vector, rnn_mode="lstm", is_training=True
        )
        return tf.transpose(result.output, (1, 0, 2))

    ways: dict[str, Callable[..., Any]] = {
        "CudnnRNNV3, lengths, batch first (Keras)": lambda x, s, v: plain(x, s, v, False),
        "CudnnRNNV3, lengths, time first": lambda x, s, v: plain(x, s, v, True),
        "CudnnRNN, no lengths": lambda x, s, v: without_lengths(tf.raw_ops.CudnnRNN, x, s, v),
        "CudnnRNNV2, no lengths": lambda x, s, v: without_lengths(tf.raw_ops.CudnnRNNV2, x, s, v),
    }
    for dtype in ("float16", "float32"):
        for name, way in ways.items():
            found[f"{dtype} {name}"] = _sequence_time(tf, cudnn_sequence, way, dtype, (units, steps, batch), quick)
    return {"ms": found}


def _sequence_time(tf: Any, cudnn: Any, way: Any, dtype: str, size: tuple[int, int, int], quick: bool) -> Any:
    units, steps, batch = size
    generator = tf.random.Generator.from_seed(1)
    x = tf.cast(generator.normal((batch, steps, units)), dtype)
    weights = [
        tf.cast(generator.normal(shape) * 0.02, dtype)
        for shape in ((units, 4 * units), (units, 4 * units), (4 * units,))
    ]
    states = [tf.zeros((batch, units), dtype)] * 2

    @tf.function(jit_compile=False)
    def run() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(way(x, states, cudnn.parameters("lstm", *weights)), tf.float32))
        return sum(tf.reduce_sum(tf.cast(each[:1], tf.float32)) for each in tape.gradient(loss, [x, *weights]))

    try:
        return timed(run, quick)
    except Exception as error:  # what a machine does not have is a result too
        return f"{type(error).__name__}: {str(error)[:100]}"


NORMS = {4: (256, 56, 56, 256), 3: (256, 128, 1024), 2: (32768, 1024), 5: (16, 16, 56, 56, 64)}


def norms(quick: bool) -> dict[str, Any]:
    """Batch normalisation by rank, as Keras 3 composes it and fused: forward and backward in float16."""
    import keras
    import tensorflow as tf

    from tfvolta.bridge import bridge_for_stack

    bridge = bridge_for_stack("keras3")
    keras.config.set_dtype_policy("mixed_float16")
    found: dict[str, Any] = {}
    for rank, shape in NORMS.items():
        shape = tuple(min(each, 4) for each in shape) if quick else shape
        x = tf.cast(tf.random.normal(shape), tf.float16)
        for fused in (False, True):
            model = keras.Sequential([keras.Input(shape[1:], dtype="float16"), keras.layers.BatchNormalization()])
            if fused:
                bridge.install_kernel(model, "fused_batch_norm")

            @tf.function(jit_compile=False)
            def run(model: Any = model, x: Any = x) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = model(x, training=True)
                    loss = tf.reduce_sum(tf.cast(y * y, tf.float32))
                return tf.reduce_sum(tf.cast(tape.gradient(loss, x)[:1], tf.float32))

            found[f"rank {rank} {'fused' if fused else 'Keras'}"] = timed(run, quick)
    return {"ms": found, "shapes": {str(rank): list(shape) for rank, shape in NORMS.items()}}
