"""What training runs show whose gradients are added up over batches or travel as float16; each part a function."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.reduction_models import (
    ALONE,
    BATCH,
    BRIDGE,
    EVERY,
    MAKERS,
    TOKENS,
    DenseGradients,
    OwnStep,
    Reduces,
    ScaledStep,
    X,
    Y,
    asked,
    compiled,
    data,
    dense,
    difference,
    embedding,
    fit,
    optimizers,
    refused,
    seen,
)
from tfvolta import build_strategy
from tfvolta.bridge.reduction import AllReduce

VARIANTS: dict[str, dict[str, Any]] = {
    # One after the other from Python, and in a loop of two windows.
    "steps_per_execution 5": {"steps_per_execution": 5},
    "steps_per_execution 6": {"steps_per_execution": 6},
    "dynamic scale": {"scale": {"initial": 1024.0}},
    "fixed scale": {"scale": {"fixed": 128.0}},
    "eager": {"run_eagerly": True},
}
FEW = ("steps_per_execution 6", "dynamic scale")


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


class Tries(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Tries XLA before the first step, as the setting of XLA does."""

    def __init__(self, trials: list[Any]):
        super().__init__()
        self.trials = trials

    def on_train_begin(self, logs: Any = None) -> None:
        BRIDGE.before_first_step(self.model, lambda data: self.trials.append(BRIDGE.try_xla(self.model, data)))


def equal_windows(
    strategy: Any, names: Sequence[str] = tuple(MAKERS), variants: Sequence[str] = tuple(VARIANTS)
) -> dict[str, Any]:
    """Windows of three batches, against one replica with batches three times as large."""
    results: dict[str, Any] = {}
    for name in names:
        maker = MAKERS[name]
        large = fit(compiled(ALONE, maker), EVERY * BATCH)
        model = fit(compiled(strategy, maker), BATCH, every=EVERY)
        results[name] = {"difference": difference(model, large), **seen(model)}
    large = fit(compiled(ALONE), EVERY * BATCH)
    for name in variants:
        model = fit(compiled(strategy, **VARIANTS[name]), BATCH, every=EVERY)
        results[name] = {"difference": difference(model, large), **seen(model)}
    return results


def all_windows(strategy: Any) -> dict[str, Any]:
    """Every optimizer, every way of calling, arrays, and half precision."""
    results = equal_windows(strategy)
    large = fit(compiled(ALONE), EVERY * BATCH)
    model = compiled(strategy)
    model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Reduces(every=EVERY)])
    results["arrays"] = {"difference": difference(model, large), **seen(model)}
    BRIDGE.set_global_policy("mixed_float16")
    large = fit(compiled(ALONE, scale={"initial": 1024.0}), EVERY * BATCH)
    model = fit(compiled(strategy, scale={"initial": 1024.0}), BATCH, every=EVERY)
    BRIDGE.set_global_policy("float32")
    results["mixed_float16"] = {"difference": difference(model, large), **seen(model)}
    return results


def losses(model: Any) -> list[float]:
    """What the last fit reported of each epoch."""
    return [float(each) for each in model.history.history["loss"]]


def few_windows(strategy: Any) -> dict[str, Any]:
    """A few, where only the number of replicas is another."""
    return equal_windows(strategy, ("adam",), FEW)


def compiled_by_xla(strategy: Any) -> dict[str, Any]:
    """Windows in a step that XLA compiles, tried out before it runs; on one CPU device."""
    results: dict[str, Any] = {}
    for name, make, given in (("dense", dense, X), ("sparse", embedding, TOKENS)):
        large = fit(compiled(ALONE, make=make), 0, data(EVERY * BATCH, given))
        model, trials = compiled(strategy, make=make, jit_compile=True), []
        trial = Tries(trials)
        model.fit(data(BATCH, given), verbose=0, callbacks=[Reduces(every=EVERY), trial])
        found = {"difference": difference(model, large), "faults": [str(each) for each in trials[0].faults]}
        results[name] = {**found, **seen(model), "compiled": BRIDGE.train_graph(model).must_compile}
    return results


def half(strategy: Any) -> dict[str, Any]:
    """Gradients that travel as float16."""
    results: dict[str, Any] = {}
    for name in ("momentum", "adam", "adamw", "global_clipnorm", *(["legacy"] if not KERAS3 else [])):
        maker = MAKERS[name]
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
    copies = asked(int(strategy.num_replicas_in_sync), implementation="hierarchical_copy", num_packs=2)
    if strategy.num_replicas_in_sync > 1:
        model = fit(compiled(build_strategy(copies)), BATCH, compression="fp16")
        results["hierarchical copy"] = {"difference": difference(model, plain), **seen(model)}
    return results


def another_all_reduce(strategy: Any) -> dict[str, Any]:
    """An all-reduce in place of the strategy's: two ranks that always have the same gradients."""
    del strategy
    results: dict[str, Any] = {}
    large = fit(compiled(ALONE), EVERY * BATCH)
    for compression in (None, "fp16"):
        for compresses in (False, True):
            dtypes: list[str] = []

            def doubled(gradients: list[Any], dtypes: list[str] = dtypes) -> list[Any]:
                dtypes.extend(each.dtype.name for each in gradients)
                return [each + each for each in gradients]

            all_reduce = AllReduce(doubled, ranks=2, compresses=compresses, name="two ranks")
            model = fit(compiled(ALONE), BATCH, every=EVERY, compression=compression, all_reduce=all_reduce)
            found = {"difference": difference(model, large), "dtypes": sorted(set(dtypes)), "calls": len(dtypes)}
            results[f"{compression} {compresses}"] = {**found, **seen(model)}
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
        # Three make whole windows, in a loop in which the data end after one batch. Keras 2 refuses unknown sizes.
        for steps in (1, 2, 3) if KERAS3 or name == "known" else (1,):
            model = fit(compiled(strategy, steps_per_execution=steps), 0, given, 3, every=EVERY)
            results[f"{name} {steps}"] = {"difference": difference(model, large), **seen(model), "loss": losses(model)}
    # Batches of equal sizes, which the step knows: what counts them in the metrics needs no batch to have come.
    model, calls = compiled(strategy, steps_per_execution=2), [Reduces(every=EVERY)]
    model.fit(X[:rows], Y[:rows], batch_size=BATCH, epochs=3, shuffle=False, verbose=0, callbacks=calls)
    results["arrays 2"] = {"difference": difference(model, large), **seen(model), "loss": losses(model)}
    model = compiled(strategy)
    fit(model, 0, data(BATCH, X[: 4 * BATCH], Y[: 4 * BATCH]), every=EVERY)
    after_one = seen(model)
    fit(model, BATCH, every=EVERY)
    large = compiled(ALONE)
    fit(large, EVERY * BATCH, data(EVERY * BATCH, X[: EVERY * BATCH], Y[: EVERY * BATCH]))
    fit(large, EVERY * BATCH)
    results["new fit"] = {"difference": difference(model, large), "after one": after_one, **seen(model)}
    return results
