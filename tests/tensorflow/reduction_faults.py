"""What is easily wrong: numbers that float16 cannot hold, overflows, Keras's own accumulation, files, settings."""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.reduction_models import (
    ALONE,
    BATCH,
    BRIDGE,
    EVERY,
    MAKERS,
    OwnStep,
    Scalar,
    X,
    Y,
    asked,
    compiled,
    data,
    dense,
    difference,
    fit,
    layers,
    optimizers,
    refused,
)
from tfvolta.callbacks.apply_plan import ApplyPlan
from tfvolta.callbacks.throughput import Throughput
from tfvolta.evidence.reading import read
from tfvolta.session import Session


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
        if name != "ema" and strategy.num_replicas_in_sync == 1:
            continue  # which Keras does rightly
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


class ReducesItself(OwnStep):
    """Adds up its gradients in the train step, past the settings."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        count = tf.distribute.get_strategy().num_replicas_in_sync
        self.optimizer.apply_gradients(zip([each / count for each in gradients], self.trainable_variables))
        return {"loss": loss}


class PastTheOptimizer(OwnStep):
    """Changes its weights without the optimizer."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        for variable, gradient in zip(self.trainable_variables, tape.gradient(loss, self.trainable_variables)):
            variable.assign(variable - 0.0 * gradient)
        return {"loss": loss}


def session(strategy: Any) -> dict[str, Any]:
    """Settings from a config to how they ended, and what the evidence says."""
    replicas = int(strategy.num_replicas_in_sync)
    results: dict[str, Any] = {}
    makers: dict[str, Callable[[], Any]] = {
        "plain": dense,
        "short": dense,
        "own step": OwnStep,
        "itself": ReducesItself,
        "past": PastTheOptimizer,
    }
    for name, make in makers.items():
        if name == "itself" and replicas == 1:
            continue
        batches = 2 if name == "short" else 4  # fewer than a window has, or one more
        config = asked(replicas, compression="fp16", reduce_every=EVERY)
        opened = Session(config)
        opened.context.strategy = strategy
        model = compiled(strategy, make=make)
        given = data(BATCH, X[: batches * BATCH], Y[: batches * BATCH])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(given, verbose=0, callbacks=[ApplyPlan(opened), Throughput(session=opened)])
        endings = {key: ending.outcome.to_json() for key, ending in opened.endings.items()}
        opened.close()
        evidence = read(opened.recorder.path)
        results[name] = {
            "endings": {
                key: endings[key] for key in ("compression", "reduce_every", "communication") if key in endings
            },
            "measured": dict(evidence.measurements).get("reduction"),
            "steps": [each["steps"] for each in dict(evidence.measurements)["throughput"]["epochs"]],
            "undone": opened.undo(),
            "left": BRIDGE.reduction(model) is not None,
        }
    return results


def reported_cases(strategy: Any) -> dict[str, Any]:
    """Faults that others have reported, with their numbers."""
    x = (np.arange(1, 17, dtype="float32") / 8)[:, None]
    results: dict[str, Any] = {}

    def line() -> Any:
        parts = [keras.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        return keras.Sequential(parts)

    def sgd(**more: Any) -> Any:
        return optimizers.SGD(0.01, **more)

    whole = fit(compiled(ALONE, sgd, line), 0, data(8, x, x * 0))
    for scale in (None, {"initial": 1024.0}):
        name = f"accumulation {'scaled' if scale else 'plain'}"
        model = fit(compiled(strategy, sgd, line, scale), 0, data(4, x, x * 0), every=2)
        results[name] = difference(model, whole)
        if KERAS3:
            own = functools.partial(sgd, gradient_accumulation_steps=2)
            model = fit(compiled(strategy, own, line, scale), 0, data(4, x, x * 0), compression=None)
            results[f"{name}, Keras's own"] = difference(model, whole)
    if KERAS3:
        replicas = int(strategy.num_replicas_in_sync)
        for steps in (None, 4):
            optimizer = functools.partial(
                optimizers.SGD, 0.5, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=steps
            )
            ones = np.ones((3 * (steps or 1) * replicas, 1), "float32")
            model = fit(compiled(strategy, optimizer, Scalar), 0, data(replicas, ones, ones), compression=None)
            average = model.optimizer._model_variables_moving_average[0]
            results[f"average {steps}"] = float(np.ravel(keras.ops.convert_to_numpy(average))[0])
    return results


def saved(strategy: Any) -> dict[str, Any]:
    """A model that is saved inside a window: sums are in no file, and plain Keras goes on from it."""
    model = compiled(strategy, MAKERS["adam"], scale={"initial": 1024.0})
    given = data(BATCH, X[: 4 * BATCH], Y[: 4 * BATCH])
    fit(model, 0, given, every=EVERY, compression="fp16")
    plain = fit(compiled(ALONE, MAKERS["adam"], scale={"initial": 1024.0}), 0, given)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            loaded = keras.models.load_model(path)
        inner = BRIDGE.inner_optimizer(loaded.optimizer)
        counts = [len(BRIDGE.inner_optimizer(each.optimizer).variables) for each in (loaded, plain)]
        results = {
            "pending": BRIDGE.reduction(model).pending,
            "difference": difference(loaded, model),
            "iterations": int(inner.iterations.numpy()),
            "variables": counts,
            "plain": "apply" not in loaded.optimizer.__dict__ and BRIDGE.reduction(loaded) is None,
        }
        loaded.fit(data(BATCH), verbose=0)
    return results
