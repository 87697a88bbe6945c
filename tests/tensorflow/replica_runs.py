"""Trains small models on one device and on several logical CPUs, and prints how far apart they end; one JSON document.

Run as ``python -m tests.tensorflow.replica_runs DEVICES``: a process can split its CPU only once, and one strategy
serves all models, since a second one would clash with its collectives.

On GPUs a step that XLA compiles does not merge its replicas. CPUs cannot compile such a step; the code that it takes is
run here all the same (``unmerged``): TensorFlow is told that replicas cannot be merged, and each replica's step is a
function of its own that XLA does not compile.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
import unittest.mock
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.config.schema import Config
from tfvolta.strategy.batch_norm import synchronize_batch_norm
from tfvolta.strategy.factory import build_strategy, verify_strategy

BRIDGE = bridge_for_stack(STACK)
STEPS, BATCH = 20, 16
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(STEPS * BATCH, 4).astype("float32")
Y = (X @ RANDOM.randn(4, 1)).astype("float32")
layers, optimizers = keras.layers, keras.optimizers


def dense() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(8), layers.Dense(1)])


def normalized() -> Any:
    parts = [keras.Input((4,)), layers.Dense(8, use_bias=False), layers.BatchNormalization(), layers.Dense(1)]
    model = keras.Sequential(parts)
    synchronize_batch_norm(model)
    return model


def embedded() -> Any:
    parts = [keras.Input((4,), dtype="int32"), layers.Embedding(10, 3), layers.Flatten(), layers.Dense(1)]
    return keras.Sequential(parts)


def wide() -> Any:
    """Gradients of more than a MiB each, so that packs of a MiB hold one."""
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(600), layers.Dense(600), layers.Dense(600), layers.Dense(1)]
    )


def sgd(**arguments: Any) -> Callable[[], Any]:
    return lambda: optimizers.SGD(0.05, momentum=0.9, **arguments)


class Case:
    """One model, optimiser and data."""

    def __init__(
        self,
        optimizer: Callable[[], Any] = sgd(),
        make: Callable[[], Any] = dense,
        x: Any = X,
        scale: LossScaleSettings | None = None,
        mixed: bool = False,
        evaluates: bool = False,
        **compile_arguments: Any,
    ) -> None:
        self.optimizer, self.make, self.x = optimizer, make, x
        self.scale, self.mixed, self.evaluates = scale, mixed, evaluates
        self.compile_arguments = compile_arguments

    def trained(self, strategy: Any, seed: int = 7) -> tuple[Any, dict[str, Any]]:
        """A model after twenty steps, and what is compared."""
        with strategy.scope():
            keras.utils.set_random_seed(seed)
            model = self.make()
            arguments = {"jit_compile": False, **self.compile_arguments}
            model.compile(self.optimizer(), "mse", metrics=["mae"], **arguments)
        if self.mixed:
            BRIDGE.retrofit(model, "mixed_float16")
        if self.scale is not None:
            BRIDGE.install_loss_scale(model, self.scale)
        BRIDGE.mend(model)
        data = tf.data.Dataset.from_tensor_slices((self.x, Y)).batch(BATCH, drop_remainder=True)
        history = model.fit(data, verbose=0).history
        found = {name: float(values[0]) for name, values in history.items()}
        if self.evaluates:
            found["evaluated"] = float(model.evaluate(data, verbose=0)[0])
            found["predicted"] = float(np.sum(model.predict(data, verbose=0)))
        return model, found


def overflow(replica: int, replicas: int) -> Any:
    """Data whose third batch is infinite on one replica."""
    x, share = X.copy(), BATCH // replicas
    x[2 * BATCH + share * replica : 2 * BATCH + share * (replica + 1)] = np.inf
    return x


def cases(replicas: int) -> Mapping[str, Case]:
    """Everything that is compared; less with four replicas, to save time."""
    dynamic = LossScaleSettings(initial=1024.0)
    found = {
        "sgd": Case(evaluates=True),
        "overflow on the last": Case(scale=dynamic, x=overflow(replicas - 1, replicas)),
    }
    if replicas > 2:
        return found
    decay = optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)
    found |= {
        "adam": Case(lambda: optimizers.Adam(decay)),
        "adamw": Case(lambda: optimizers.AdamW(0.01, weight_decay=0.1)),
        "mixed": Case(scale=LossScaleSettings(fixed=128.0), mixed=True),
        "clipnorm": Case(sgd(clipnorm=0.1)),
        "scaled and clipped": Case(sgd(global_clipnorm=0.1), scale=dynamic),
        "overflow on the first": Case(scale=dynamic, x=overflow(0, replicas)),
        "batch norm": Case(make=normalized, evaluates=True),
        "embedding": Case(make=embedded, x=np.abs(X * 3).astype("int32") % 10),
        "several steps a call": Case(steps_per_execution=3, evaluates=True),
        "packs": Case(lambda: optimizers.SGD(1e-4), make=wide),
    }
    if KERAS3:
        found |= {
            "overwritten by the average": Case(sgd(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)),
            "nadam": Case(lambda: optimizers.Nadam(0.01)),
            "eager": Case(run_eagerly=True),
        }
    return found


@contextlib.contextmanager
def unmerged(strategy: Any) -> Iterator[None]:
    """A strategy whose replicas cannot be merged, and steps that are functions of their own, without XLA."""
    from tfvolta.bridge import keras3_replica_step

    def function(step: Any) -> Any:
        return tf.function(step, autograph=False, reduce_retracing=True)

    strategy.extended._use_merge_call = lambda: False
    try:
        with unittest.mock.patch.object(keras3_replica_step, "_compiled", function):
            yield
    finally:
        del strategy.extended._use_merge_call


def difference(left: Any, right: Any) -> float:
    """Largest difference of weights, relative to the largest weight of the same variable or to 0.01."""
    pairs = zip(left.get_weights(), right.get_weights())
    return max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 0.01)) for a, b in pairs)


def counts(model: Any) -> dict[str, Any]:
    found = BRIDGE.step_counts(model)
    state = BRIDGE.loss_scale(model.optimizer)
    return {"applied": found.applied, "skipped": found.skipped, "scale": None if state is None else state.scale}


class Run:
    """The context of a run as ``verify_strategy`` sees it."""

    def __init__(self, strategy: Any):
        self.strategy = strategy


def compared(case: Case, strategy: Any, asked: Config) -> dict[str, Any]:
    """A case on one device and on replicas, merged and (Keras 3) not."""
    alone, reference = case.trained(tf.distribute.get_strategy())
    found: dict[str, Any] = {"alone": {**reference, **counts(alone)}}
    model, values = case.trained(strategy)
    outcomes = verify_strategy(asked, Run(strategy), model, BATCH)
    found["merged"] = {**values, **counts(model), "difference": difference(model, alone)}
    found["merged"]["communication"] = outcomes["communication"].to_json()
    if KERAS3 and not case.compile_arguments.get("run_eagerly"):
        case.compile_arguments["jit_compile"] = True
        with unmerged(strategy):
            model, values = case.trained(strategy)
            outcomes = verify_strategy(asked, Run(strategy), model, BATCH)
        found["unmerged"] = {**values, **counts(model), "difference": difference(model, alone)}
        found["unmerged"]["communication"] = outcomes["communication"].to_json()
    return found


def compiled(strategy: Any) -> dict[str, Any]:
    """A step with XLA's mark, traced and not run: a function of its own on each device."""
    with strategy.scope():
        keras.utils.set_random_seed(7)
        model = embedded()
        model.compile(optimizers.Adam(0.01), "mse", jit_compile=True)
    BRIDGE.install_loss_scale(model, LossScaleSettings())
    BRIDGE.mend(model)
    data = tf.data.Dataset.from_tensor_slices((np.zeros((BATCH, 4), "int32"), Y[:BATCH])).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(data))
    strategy.extended._use_merge_call = lambda: False
    try:
        with strategy.scope():
            model.optimizer.build(model.trainable_variables)
        model.make_train_function()
        trial = BRIDGE.try_xla(model, iterator)
    finally:
        del strategy.extended._use_merge_call
    graph = BRIDGE.train_graph(model)
    return {
        "must_compile": graph.must_compile,
        "compiled_on": list(graph.compiled_on),
        "gathered": graph.count("CollectiveGatherV2"),
        "faults": [fault.operation or fault.reason for fault in trial.faults],
        "obstacles": BRIDGE.xla_obstacles(model),
    }


class Merges(layers.Layer):  # type: ignore[misc,name-defined]
    """Assigns a variable that belongs to the first replica, which merges replicas."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(
            shape=(), initializer="zeros", trainable=False, aggregation="only_first_replica", name="calls"
        )

    def call(self, inputs: Any) -> Any:
        self.calls.assign(self.calls + 1.0)
        return inputs


def uncompilable(strategy: Any) -> list[str]:
    """What the trial says of a step that merges replicas."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), Merges(), layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
    BRIDGE.mend(model)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    iterator = iter(strategy.experimental_distribute_dataset(data))
    strategy.extended._use_merge_call = lambda: False
    try:
        model.make_train_function()
        return [fault.reason for fault in BRIDGE.try_xla(model, iterator).faults]
    finally:
        del strategy.extended._use_merge_call


def main(replicas: int) -> dict[str, Any]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    devices = [f"CPU:{i}" for i in range(replicas)]
    asked = Config.model_validate(
        {"strategy": {"kind": "mirrored", "devices": devices}, "communication": {"pack_mb": 1}}
    )
    strategy = build_strategy(asked)
    found: dict[str, Any] = {name: compared(case, strategy, asked) for name, case in cases(replicas).items()}
    if KERAS3:
        found["compiled"] = compiled(strategy)
        found["uncompilable"] = uncompilable(strategy)
    return found


if __name__ == "__main__":
    try:
        print("RESULT " + json.dumps(main(int(sys.argv[1]))))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
