"""Trains small models whose gradients are reduced otherwise than in plain Keras, and prints what happened as JSON.

Run as ``python -m tests.tensorflow.reduction_runs REPLICAS``: a process can split its CPU only once.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
import warnings
from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.errors import BridgeError

BRIDGE = bridge_for_stack(STACK)
EVERY, BATCH, WINDOWS = 3, 8, 4
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(EVERY * BATCH * WINDOWS, 4).astype("float32")
Y = (X @ RANDOM.randn(4, 1)).astype("float32")
TOKENS = RANDOM.randint(0, 20, (len(X), 3)).astype("int32")
ALONE = tf.distribute.get_strategy()
optimizers = keras.optimizers
layers = keras.layers


class Reduces(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """What the settings do when fit begins: corrects the model and gives its gradients a path."""

    def __init__(self, **settings: Any):
        super().__init__()
        self.settings = settings

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        BRIDGE.mend(model)
        BRIDGE.count_steps(model)
        BRIDGE.set_reduction(model, **self.settings)


def dense() -> Any:
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])


def embedding(kind: Any = keras.Sequential) -> Any:
    """Sparse gradients, with rows that no batch names."""
    keras.utils.set_random_seed(7)
    return kind([keras.Input((3,), dtype="int32"), layers.Embedding(40, 4), layers.Flatten(), layers.Dense(1)])


class DenseGradients(keras.Sequential):  # type: ignore[misc,name-defined]
    """Makes sparse gradients dense: Keras 3's Adam squares each of two slices of a row instead of their sum."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class OwnStep(keras.Model):  # type: ignore[misc,name-defined]
    """A subclassed model with a train step of its own, in Keras's words."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(7)
        self.hidden = layers.Dense(8, activation="tanh")
        self.out = layers.Dense(1)
        self.build((None, 4))

    def build(self, shape: Any) -> None:
        """Makes the weights, so that a strategy finds them."""
        if not self.built:
            self.built = True
            self(tf.zeros((1, 4)))

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    def loss_of(self, data: Any) -> Any:
        """The replica's share of the mean squared error."""
        x, y = data
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_mean(tf.square(self(x, training=True) - y)) / replicas

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class ScaledStep(OwnStep):
    """The same with the package's functions for loops of one's own."""

    def train_step(self, data: Any) -> Any:
        from tfvolta import precision

        with tf.GradientTape() as tape:
            loss = precision.scale_loss(self.optimizer, self.loss_of(data))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = precision.unscale_gradients(self.optimizer, gradients)
        precision.apply_gradients(self.optimizer, zip(gradients, self.trainable_variables))
        return {"loss": loss}


class TwoOptimizers(OwnStep):
    """Two optimizers, each with variables of its own."""

    def compile(self, optimizer: Any, *arguments: Any, **keywords: Any) -> None:
        super().compile(optimizer, *arguments, **keywords)
        self.second = optimizers.SGD(0.02, momentum=0.5)
        if hasattr(self.second, "build"):
            self.second.build(self.out.trainable_variables)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        parts = [self.hidden.trainable_variables, self.out.trainable_variables]
        first, second = tape.gradient(loss, parts)
        self.optimizer.apply_gradients(zip(first, parts[0]))
        self.second.apply_gradients(zip(second, parts[1]))
        return {"loss": loss}


class Twice(OwnStep):
    """Two updates of the same variables in a step."""

    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return super().train_step(data)


MAKERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.05),
    "momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.01),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "clipnorm": lambda: optimizers.SGD(0.05, clipnorm=0.3),
    "global_clipnorm": lambda: optimizers.SGD(0.05, global_clipnorm=0.3),
    "clipvalue": lambda: optimizers.SGD(0.05, clipvalue=0.1),
    "ema": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "schedule": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)),
}
if not KERAS3:
    MAKERS["legacy"] = lambda: optimizers.legacy.SGD(0.05, momentum=0.9, global_clipnorm=0.5)
    MAKERS["legacy_adam"] = lambda: optimizers.legacy.Adam(0.01)


def flat(model: Any) -> Any:
    return np.concatenate([np.ravel(weights) for weights in model.get_weights()])


def data(batch: int, x: Any = X, y: Any = Y) -> Any:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True)


def compiled(
    strategy: Any,
    optimizer: Callable[[], Any] = MAKERS["momentum"],
    make: Callable[[], Any] = dense,
    scale: Any = None,
    **arguments: Any,
) -> Any:
    """A model in a strategy's scope, with a loss scale where one is given."""
    with strategy.scope():
        model, made = make(), optimizer()
        if scale is not None:
            made = BRIDGE.scale_optimizer(made, LossScaleSettings(**scale))
        model.compile(made, "mse", **{"jit_compile": False, **arguments})
    return model


def fit(model: Any, batch: int, given: Any = None, epochs: int = 1, **settings: Any) -> Any:
    callbacks = [Reduces(**settings)] if settings else []
    model.fit(data(batch) if given is None else given, verbose=0, shuffle=False, callbacks=callbacks, epochs=epochs)
    return model


def difference(one: Any, other: Any) -> float:
    return float(np.abs(flat(one) - flat(other)).max())


def seen(model: Any) -> dict[str, Any]:
    """What the bridge says of a model's reduction."""
    state, counts = BRIDGE.reduction(model), BRIDGE.step_counts(model)
    graphs = BRIDGE.reduction_graphs(model)
    return {
        "batches": state.batches,
        "updates": state.updates,
        "pending": state.pending,
        "gradient_bytes": state.gradient_bytes,
        "wire_bytes": state.wire_bytes,
        "applied": counts.applied,
        "skipped": counts.skipped,
        "graphs": {
            mode: [dict(graph.operations), graph.bytes, sum(graph.others.values())] for mode, graph in graphs.items()
        },
        "traces": BRIDGE.trace_count(model),
    }


def equal_windows(strategy: Any) -> dict[str, Any]:
    """Windows of three batches, against one replica with batches three times as large."""
    results: dict[str, Any] = {}
    for name, maker in MAKERS.items():
        large = fit(compiled(ALONE, maker), EVERY * BATCH)
        model = fit(compiled(strategy, maker), BATCH, every=EVERY)
        results[name] = {"difference": difference(model, large), **seen(model)}
    large = fit(compiled(ALONE), EVERY * BATCH)
    steps = {f"steps_per_execution {n}": {"steps_per_execution": n} for n in (2, 5, 6)}
    scales = {"dynamic scale": {"scale": {"initial": 1024.0}}, "fixed scale": {"scale": {"fixed": 128.0}}}
    for name, arguments in {**steps, **scales, "eager": {"run_eagerly": True}}.items():
        model = fit(compiled(strategy, **arguments), BATCH, every=EVERY)
        results[name] = {"difference": difference(model, large), **seen(model)}
    model = compiled(strategy)
    model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Reduces(every=EVERY)])
    results["arrays"] = {"difference": difference(model, large), **seen(model)}
    return results


def half(strategy: Any) -> dict[str, Any]:
    """Gradients that travel as float16."""
    results: dict[str, Any] = {}
    for name, maker in MAKERS.items():
        plain = fit(compiled(ALONE, maker), BATCH)
        model = fit(compiled(strategy, maker), BATCH, compression="fp16")
        results[name] = {"difference": difference(model, plain), **seen(model)}
    plain = fit(compiled(ALONE), BATCH)
    for name, scale in {"dynamic scale": {"initial": 1024.0}, "fixed scale": {"fixed": 128.0}}.items():
        model = fit(compiled(strategy, scale=scale), BATCH, compression="fp16")
        results[name] = {"difference": difference(model, plain), **seen(model)}
    large = fit(compiled(ALONE), EVERY * BATCH)
    model = fit(compiled(strategy), BATCH, compression="fp16", every=EVERY)
    results["both"] = {"difference": difference(model, large), **seen(model)}
    return results


class Scalar(OwnStep):
    """One weight whose gradient is the batch's mean of x: what travels is known to the bit."""

    def __init__(self) -> None:
        keras.Model.__init__(self)
        self.layer = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self.build((None, 1))

    def build(self, shape: Any) -> None:
        if not self.built:
            self.built = True
            self(tf.zeros((1, 1)))

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    def train_step(self, data: Any) -> Any:
        from tfvolta import precision

        x = data[0]
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.GradientTape() as tape:
            loss = precision.scale_loss(self.optimizer, tf.reduce_mean(self(x, training=True)) / replicas)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = precision.unscale_gradients(self.optimizer, gradients)
        precision.apply_gradients(self.optimizer, zip(gradients, self.trainable_variables))
        return {"loss": loss}


def scalar(strategy: Any, rows: list[float], scale: Any = None, **settings: Any) -> list[float]:
    """Weights after steps of one row a replica, with a learning rate of -1: the sum of the gradients that arrived."""
    x = np.array(rows, "float32")[:, None]
    model = compiled(strategy, lambda: optimizers.SGD(1.0), Scalar, scale)
    fit(model, int(strategy.num_replicas_in_sync), data(int(strategy.num_replicas_in_sync), x, x), **settings)
    state = BRIDGE.loss_scale(model.optimizer)
    counts = BRIDGE.step_counts(model)
    copies = [float(np.ravel(copy.numpy())[0]) for copy in _copies(model, strategy)]
    return [*copies, float(state.scale) if state else 0.0, counts.applied, counts.skipped]


def _copies(model: Any, strategy: Any) -> Any:
    variable = model.trainable_variables[0]
    return strategy.experimental_local_results(variable.value if KERAS3 else variable)


def numbers(strategy: Any) -> dict[str, Any]:
    """What float16 does to gradients that are too small, too large or not finite."""
    replicas = int(strategy.num_replicas_in_sync)
    one, infinite = [1.0] * (replicas - 1), float("inf")
    results = {
        "small": scalar(strategy, [1e-9] * replicas, compression="fp16"),
        "small scaled": scalar(strategy, [1e-9] * replicas, {"fixed": 32768.0}, compression="fp16"),
        "large": scalar(strategy, [1e9] * replicas, compression="fp16"),
        "one large": scalar(strategy, [*one, 3e38], compression="fp16"),
        "infinite": scalar(strategy, [*one, infinite], compression="fp16"),
    }
    for name, settings in {"fp16": {"compression": "fp16"}, "fp32": {"every": 1, "compression": None}}.items():
        # The last replica's gradient overflows in the first of two steps.
        rows = [*one, infinite, *([1.0] * replicas)]
        results[f"overflow {name}"] = scalar(strategy, rows, {"initial": 1024.0}, **settings)
    rows = [*one, 1000.0, *([1.0] * replicas)]  # 1000 * 1024 is no float16, for two replicas either
    results["overflow on the wire"] = scalar(strategy, rows, {"initial": 1024.0}, compression="fp16")
    # Windows of two: the overflow is in the first, then in the second batch of a window.
    rows = [*one, infinite, *([1.0] * (3 * replicas)), *([1.0] * replicas), *one, infinite, *([1.0] * (2 * replicas))]
    for name, settings in {"fp16": {"compression": "fp16"}, "fp32": {}}.items():
        results[f"overflow in windows {name}"] = scalar(strategy, rows, {"initial": 1024.0}, every=2, **settings)
    return results


def other_steps(strategy: Any) -> dict[str, Any]:
    """Train steps of a script's own, and sparse gradients."""
    results: dict[str, Any] = {}
    for name, make in {"own step": OwnStep, "two optimizers": TwoOptimizers, "scaled step": ScaledStep}.items():
        scale = {"initial": 1024.0} if make is ScaledStep else None
        large = fit(compiled(ALONE, make=make, scale=scale), EVERY * BATCH)
        model = fit(compiled(strategy, make=make, scale=scale), BATCH, every=EVERY)
        results[name] = {"difference": difference(model, large), **seen(model)}
    for name in ("momentum", "adam"):
        known = (lambda: embedding(DenseGradients)) if KERAS3 and name == "adam" else embedding
        large = fit(compiled(ALONE, MAKERS[name], known), 0, data(EVERY * BATCH, TOKENS))
        model = fit(compiled(strategy, MAKERS[name], embedding), 0, data(BATCH, TOKENS), every=EVERY)
        untouched = np.abs(model.get_weights()[0][20:] - large.get_weights()[0][20:]).max()
        results[f"sparse {name}"] = {
            "difference": difference(model, large),
            "untouched": float(untouched),
            **seen(model),
        }
        plain = fit(compiled(ALONE, MAKERS[name], known), 0, data(BATCH, TOKENS))
        model = fit(compiled(strategy, MAKERS[name], embedding), 0, data(BATCH, TOKENS), compression="fp16")
        results[f"sparse half {name}"] = {"difference": difference(model, plain), **seen(model)}
    results["twice"] = refused(lambda: fit(compiled(strategy, make=Twice), BATCH, every=EVERY))
    return results


def refused(action: Callable[[], Any]) -> str:
    """The message with which something is refused, or ``accepted``."""
    try:
        action()
    except BridgeError as error:
        return str(error)
    except Exception as error:  # TensorFlow repeats an error of a trace in its own
        return str(error)
    return "accepted"


def left_over(strategy: Any) -> dict[str, Any]:
    """Batches that do not fill a window at the end of an epoch, of data of known and unknown size, and of a fit."""
    results: dict[str, Any] = {}
    rows = EVERY * BATCH * 2 + BATCH  # seven batches an epoch: three epochs make seven windows
    order = np.concatenate([np.arange(rows)] * 3)
    large = fit(compiled(ALONE), 0, data(EVERY * BATCH, X[order], Y[order]))

    def rows_of() -> Any:
        yield from zip(X[:rows], Y[:rows])

    spec = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((1,), tf.float32))
    unknown = tf.data.Dataset.from_generator(rows_of, output_signature=spec).batch(BATCH)
    for name, given in {"known": data(BATCH, X[:rows], Y[:rows]), "unknown": unknown}.items():
        for steps in (1, 2) if KERAS3 or name == "known" else (1,):  # Keras 2 refuses the other pair
            model = fit(compiled(strategy, steps_per_execution=steps), 0, given, 3, every=EVERY)
            results[f"{name} {steps}"] = {"difference": difference(model, large), **seen(model)}
    model = compiled(strategy)
    fit(model, 0, data(BATCH, X[: 4 * BATCH], Y[: 4 * BATCH]), every=EVERY)
    after_one = seen(model)
    fit(model, BATCH, every=EVERY)
    large = compiled(ALONE)
    fit(large, EVERY * BATCH, data(EVERY * BATCH, X[: EVERY * BATCH], Y[: EVERY * BATCH]))
    fit(large, EVERY * BATCH)
    results["new fit"] = {"difference": difference(model, large), "after one": after_one, **seen(model)}
    return results


def own_accumulation(strategy: Any) -> dict[str, Any]:
    """``gradient_accumulation_steps`` of Keras 3's optimizers, in the bridge's hands where Keras fails."""
    if not KERAS3:
        return {}
    makers: dict[str, Callable[..., Any]] = {
        "momentum": lambda **more: optimizers.SGD(0.05, momentum=0.9, **more),
        "adam": lambda **more: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.01, 1, 0.5), **more),
        "ema": lambda **more: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2, **more),
    }
    results: dict[str, Any] = {}
    for name, maker in makers.items():
        for scale in (None, {"initial": 1024.0}):
            own: Callable[[], Any] = functools.partial(maker, gradient_accumulation_steps=EVERY)
            if name == "ema":  # of which Keras's own is wrong
                large = fit(compiled(ALONE, maker, scale=scale), EVERY * BATCH)
            else:
                large = fit(compiled(ALONE, own, scale=scale), BATCH)
            model = fit(compiled(strategy, own, scale=scale), BATCH, compression=None)
            inner = BRIDGE.inner_optimizer(model.optimizer)
            results[f"{name} {'scaled' if scale else 'plain'}"] = {
                "difference": difference(model, large),
                "iterations": int(keras.ops.convert_to_numpy(inner.iterations)),
                "batches": int(keras.ops.convert_to_numpy(inner._iterations)),
                "averages": _averages(inner, BRIDGE.inner_optimizer(large.optimizer)),
                "taken": BRIDGE.reduction(model) is not None,
            }
    model = compiled(strategy, lambda: makers["momentum"](gradient_accumulation_steps=2))
    results["both"] = refused(lambda: fit(model, BATCH, every=EVERY))
    return results


def _averages(one: Any, other: Any) -> float:
    """Largest difference between the averages that two optimizers keep of the weights."""
    pairs = zip(*(getattr(each, "_model_variables_moving_average", []) for each in (one, other)))
    return max(
        (float(np.abs(keras.ops.convert_to_numpy(a) - keras.ops.convert_to_numpy(b)).max()) for a, b in pairs),
        default=0.0,
    )


PARTS: dict[str, Callable[[Any], Any]] = {
    "windows": equal_windows,
    "half": half,
    "numbers": numbers,
    "steps": other_steps,
    "left over": left_over,
    "accumulation": own_accumulation,
}


def main(replicas: int, without_merge_calls: bool, parts: list[str]) -> dict[str, Any]:
    """Everything with so many replicas on logical CPU devices."""
    strategy = ALONE
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])
    if without_merge_calls:  # as on GPUs in a step that XLA compiles
        strategy.extended._use_merge_call = lambda: False
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    return {"stack": STACK, **{name: PARTS[name](strategy) for name in parts or PARTS}}


if __name__ == "__main__":
    try:
        arguments = sys.argv[2:]
        found = main(int(sys.argv[1]), "--without-merge-calls" in arguments, [p for p in arguments if p in PARTS])
        print("RESULT " + json.dumps(found))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
