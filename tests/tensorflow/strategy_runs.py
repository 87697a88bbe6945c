"""Trains small models under strategies on logical CPU devices and prints what happened, one JSON document.

Run as ``python -m tests.tensorflow.strategy_runs DEVICES``: a process can split its CPU only once.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
import unittest.mock
from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.bridge.graphs import summarize
from tfvolta.config.schema import Config
from tfvolta.errors import PlanError
from tfvolta.strategy.batch_norm import audit_batch_norm, note_batch_norm, synchronize_batch_norm
from tfvolta.strategy.factory import build_strategy, verify_strategy

STEPS, BATCH, GRADIENTS = 8, 16, 6
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(STEPS * BATCH, 4).astype("float32")
Y = (X @ RANDOM.randn(4, 1)).astype("float32")


class Run:
    """The context of a run as ``verify_strategy`` sees it."""

    def __init__(self, strategy: Any):
        self.strategy = strategy


def config(count: int, strategy: dict[str, Any] | None = None, **communication: Any) -> Config:
    """A mirrored config over ``count`` CPUs."""
    section = {"kind": "mirrored", "devices": [f"CPU:{i}" for i in range(count)], **(strategy or {})}
    return Config.model_validate({"strategy": section, "communication": communication})


def make_model(width: int = 8) -> Any:
    """Three dense layers, six gradients, with the same first weights every time."""
    keras.utils.set_random_seed(7)
    layers = [keras.Input((4,))] + [keras.layers.Dense(width, activation="tanh") for _ in range(2)]
    return keras.Sequential([*layers, keras.layers.Dense(1)])


def dataset(batch: int = BATCH) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch, drop_remainder=True)


def fit(strategy: Any, make: Callable[[], Any] = make_model, **compile_arguments: Any) -> tuple[Any, float]:
    """Trains eight steps; the model and its loss over them."""
    with strategy.scope():
        model = make()
        optimizer = compile_arguments.pop("optimizer", None) or keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "mse", **compile_arguments)
    return model, float(model.fit(dataset(), verbose=0).history["loss"][0])


def flat(model: Any) -> Any:
    return np.concatenate([np.ravel(weights) for weights in model.get_weights()])


def report(model: Any, loss: float, asked: Config, strategy: Any) -> dict[str, Any]:
    """What one training run showed, counted here and by the package."""
    summary = summarize(model)
    outcomes = verify_strategy(asked, Run(strategy), model, BATCH)
    return {
        "loss": loss,
        "replicas": strategy.num_replicas_in_sync,
        "add_n": summary.count("AddN") / summary.traces if summary else None,
        "collectives": sum(summary.collectives.values()) / summary.traces if summary else None,
        "hints": dict(summary.hints) if summary else None,
        "outcomes": {name: outcome.to_json() for name, outcome in outcomes.items()},
    }


def equal_runs(count: int, reference: Any) -> dict[str, Any]:
    """Every all-reduce, against one device on the same global batch."""
    results = {}
    cases: list[tuple[str, dict[str, Any]]] = [("auto", {})]
    cases += [(f"hierarchical_copy {n}", {"implementation": "hierarchical_copy", "num_packs": n}) for n in (0, 1, 2, 4)]
    cases += [("hierarchical_copy", {"implementation": "hierarchical_copy"})] * (count == 2)
    cases += [("reduction_to_one_device", {"implementation": "reduction_to_one_device"})]
    for name, communication in cases:
        asked = config(count, **communication)
        strategy = build_strategy(asked)
        model, loss = fit(strategy)
        results[name] = report(model, loss, asked, strategy)
        results[name]["difference"] = float(np.abs(flat(model) - reference).max())
    return results


def same_object(count: int) -> dict[str, Any]:
    """The same configuration again: the same strategy, so a model of another shape trains in this process too."""
    first, second = build_strategy(config(count)), build_strategy(config(count))
    _, loss = fit(second, lambda: make_model(5))
    return {"same": first is second, "finite": bool(np.isfinite(loss))}


def refused(asked: Config) -> str:
    """The message with which a strategy is refused, or ``accepted``."""
    try:
        build_strategy(asked)
    except PlanError as error:
        return str(error)
    return "accepted"


def refusals(count: int) -> dict[str, str]:
    return {
        "other collectives": refused(config(count, {"devices": ["CPU:1", "CPU:0"]})),
        "nccl": refused(config(count, implementation="nccl")),
        "missing device": refused(config(count, {"devices": ["CPU:0", f"CPU:{count}"]})),
        "gpu": refused(config(count, {"devices": ["GPU:0", "CPU:0"]})),
        "three": refused(config(3, implementation="hierarchical_copy")),
        "kind": refused(config(count, {"kind": "central_storage"})),
    }


def one_replica() -> dict[str, Any]:
    """A MirroredStrategy of one replica, on a device that is not the default."""
    asked = config(1, {"devices": ["CPU:1"]}, implementation="hierarchical_copy", num_packs=2)
    strategy = build_strategy(asked)
    model, loss = fit(strategy)
    result = report(model, loss, asked, strategy)
    single = build_strategy(config(1))
    return {**result, "default": single is tf.distribute.get_strategy()}


def one_device() -> dict[str, Any]:
    asked = Config.model_validate({"strategy": {"kind": "one_device", "devices": ["CPU:1"]}})
    strategy = build_strategy(asked)
    model, loss = fit(strategy)
    return report(model, loss, asked, strategy)


class OwnStep(keras.Model):  # type: ignore[misc,name-defined]
    """A custom train step; ``reduces`` says whether its gradients pass through the optimizer."""

    reduces = True

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y)) / BATCH
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.reduces:
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class NoReduction(OwnStep):
    reduces = False


def make_embedding() -> Any:
    """Sparse gradients on Keras 2; Keras 3 has them too."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Embedding(10, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    )


def built(make: Callable[[], Any]) -> Callable[[], Any]:
    """Builds a subclassed model before fit."""

    def make_built() -> Any:
        model = make()
        model(X[:2])
        return model

    return make_built


def kinds_of_model(count: int) -> dict[str, Any]:
    """Packing seen whatever the model: custom steps, sparse gradients, several steps a call, loss scaling, eager."""
    asked = config(count, implementation="hierarchical_copy", num_packs=2)
    strategy = build_strategy(asked)
    with strategy.scope():
        inner = keras.optimizers.SGD(0.05)
        scaled = (keras.optimizers if KERAS3 else keras.mixed_precision).LossScaleOptimizer(inner)
    cases: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
        "custom step": (built(OwnStep), {}),
        "no reduction": (built(NoReduction), {}),
        "embedding": (make_embedding, {}),
        "steps_per_execution": (make_model, {"steps_per_execution": 4}),
        "loss scale": (make_model, {"optimizer": scaled}),
        "eager": (make_model, {"run_eagerly": True}),
    }
    global X
    results, dense_x = {}, X
    for name, (make, arguments) in cases.items():
        X = np.abs(dense_x).astype("int32") % 10 if name == "embedding" else dense_x
        model, _ = fit(strategy, make, **arguments)
        results[name] = verify_strategy(asked, Run(strategy), model)["communication"].to_json()
    X = dense_x
    return results


def batch_norm(count: int) -> dict[str, Any]:
    """Plain batch normalisation is reported; converted, its moving statistics are those of the global batch."""
    x = np.repeat(np.arange(count) % 2 * 10.0, 4)[:, None].astype("float32")  # half the replicas see 0, half see 10
    strategy = build_strategy(config(count, implementation="hierarchical_copy"))
    with strategy.scope():
        norms = [keras.layers.BatchNormalization(momentum=0.0, name=f"norm_{i}") for i in range(3)]
        norms[2].trainable = False
        image = [keras.layers.Reshape((1, 1, 1)), norms[1], keras.layers.Flatten()]  # four axes: Keras 2's fused kernel
        model = keras.Sequential([keras.Input((1,)), norms[0], keras.Sequential(image), norms[2]])
        model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    names, note = audit_batch_norm(model, count), note_batch_norm(model, count, len(x))
    batches = tf.data.Dataset.from_tensor_slices((x, x)).batch(len(x))
    model.fit(batches, verbose=0)
    plain = [float(np.ravel(v.numpy())[0]) for v in (norms[0].moving_mean, norms[0].moving_variance)]
    changed = synchronize_batch_norm(model)
    model.fit(batches, verbose=0)
    stats = [[float(np.ravel(v.numpy())[0]) for v in (n.moving_mean, n.moving_variance)] for n in norms]
    after = audit_batch_norm(model, count)
    return {
        "names": names,
        "note": note,
        "plain": plain,
        "changed": changed,
        "stats": stats,
        "after": after,
        "one replica": audit_batch_norm(model, 1),
    }


def forced_jit(strategy: Any) -> str:
    """With what a jit-compiled step over several CPU devices fails."""
    try:
        fit(strategy, jit_compile=True)
    except Exception as raised:
        return str(raised)
    return ""


def auto_jit(strategy: Any) -> dict[str, Any]:
    """What the bridge says of Keras's own choice where a GPU is listed; nothing runs on it."""
    listed = tf.config.list_physical_devices()
    gpu = types.SimpleNamespace(device_type="GPU", name="/physical_device:GPU:0")
    with strategy.scope():
        model = make_model()
    with unittest.mock.patch.object(tf.config, "list_physical_devices", lambda kind=None: [*listed, gpu]):
        model.compile("sgd", "mse")
        state = bridge_for(model).jit(model)
    return {"effective": state.effective, "reason": state.reason}


def jit(count: int) -> dict[str, Any]:
    """What a strategy does to XLA: a forced jit fails on CPU devices, Keras 3's auto is switched off."""
    strategy = build_strategy(config(count, implementation="hierarchical_copy"))
    return {
        "forced": forced_jit(strategy),
        "auto": auto_jit(strategy),
        "auto alone": auto_jit(tf.distribute.get_strategy()),
    }


def odd_hierarchy() -> float:
    """Largest difference of weights that TensorFlow's hierarchical copy over three replicas makes; 0 would be right."""
    weights = []
    three = [f"CPU:{i}" for i in range(3)]
    mirrored = tf.distribute.MirroredStrategy(three, cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
    for strategy in (tf.distribute.get_strategy(), mirrored):
        with strategy.scope():
            model = make_model()
            model.compile(keras.optimizers.SGD(0.05), "mse")
        model.fit(dataset(12), verbose=0)
        weights.append(flat(model))
    return float(np.abs(weights[0] - weights[1]).max())


def uneven_shares(count: int) -> float:
    """Batches that give the first replica one row more, against one device that weighs the rows as replicas do."""
    rows = 2 * count + 1
    shares = np.array([3] + [2] * (count - 1))
    weights = np.repeat(rows / (count * shares), shares).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((X[: 3 * rows], Y[: 3 * rows])).batch(rows)
    weighted = batches.map(lambda x, y: (x, y, tf.constant(weights)))
    found = []
    for strategy, data in ((build_strategy(config(count)), batches), (tf.distribute.get_strategy(), weighted)):
        with strategy.scope():
            model = make_model()
            model.compile(keras.optimizers.SGD(0.05), "mse")
        model.fit(data, verbose=0)
        found.append(flat(model))
    return float(np.abs(found[0] - found[1]).max())


def outside_scope(count: int) -> dict[str, Any]:
    """A model made before the strategy's scope was entered."""
    asked = config(count, implementation="hierarchical_copy")
    model, _ = fit(tf.distribute.get_strategy())
    return verify_strategy(asked, Run(build_strategy(asked)), model)["strategy"].to_json()


def own_strategy(count: int) -> dict[str, Any]:
    """A strategy that the script made itself does not have the all-reduce that the config asks for."""
    asked = config(count, implementation="hierarchical_copy", num_packs=4)
    devices = [f"CPU:{i}" for i in range(count)]
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.HierarchicalCopyAllReduce(1))
    model, _ = fit(strategy)
    return verify_strategy(asked, Run(strategy), model)["communication"].to_json()


def main(count: int) -> dict[str, Any]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    model, loss = fit(tf.distribute.get_strategy())
    default = Config.model_validate({"strategy": {"kind": "default"}})
    results = {
        "stack": STACK,
        "single": report(model, loss, default, build_strategy(default)),
        "equal": equal_runs(count, flat(model)),
        "refusals": refusals(count),
    }
    if count > 2:
        return {**results, "odd hierarchy": odd_hierarchy()}
    return {
        **results,
        "same object": same_object(count),
        "batch norm": batch_norm(count),
        "one replica": one_replica(),
        "one device": one_device(),
        "models": kinds_of_model(count),
        "uneven shares": uneven_shares(count),
        "outside scope": outside_scope(count),
        "own strategy": own_strategy(count),
        "jit": jit(count),
    }


if __name__ == "__main__":
    try:
        print("RESULT " + json.dumps(main(int(sys.argv[1]))))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
