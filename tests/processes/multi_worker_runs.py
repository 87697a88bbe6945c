"""Trains small models as one of two workers, or alone on the same batches, and prints what happened as JSON.

Run as ``python -m tests.processes.multi_worker_runs FOLDER workers|alone``, with TF_CONFIG for ``workers``. Weights go
into the folder; every worker makes its models with a seed of its own, and worker 0's counts.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import traceback
from typing import Any, Callable, Mapping

import numpy as np

import tfvolta
from tests.processes.reduction_workers import reduction
from tests.stack import KERAS3, keras, tf
from tests.tensorflow.replica_runs import BATCH, Case, X, Y, counts, dense, embedded, normalized, overflow, sgd, wide
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.session import session_for

layers, optimizers = keras.layers, keras.optimizers
DYNAMIC = LossScaleSettings(initial=1024.0)
CASES: Mapping[str, Callable[[], Case]] = {
    "sgd": lambda: Case(evaluates=True),
    "adam": lambda: Case(lambda: optimizers.Adam(0.01)),
    "mixed": lambda: Case(scale=LossScaleSettings(fixed=128.0), mixed=True),
    "scaled and clipped": lambda: Case(sgd(global_clipnorm=0.1), scale=DYNAMIC),
    "overflow on worker 1": lambda: Case(scale=DYNAMIC, x=overflow(1, 2)),
    "batch norm": lambda: Case(make=normalized, evaluates=True),
    "embedding": lambda: Case(make=embedded, x=np.abs(X * 3).astype("int32") % 10),
    "several steps a call": lambda: Case(steps_per_execution=3, evaluates=True),
    "subclassed": lambda: Case(make=Subclassed),
    "packs": lambda: Case(lambda: optimizers.SGD(1e-4), make=wide),
    **({"eager": lambda: Case(run_eagerly=True)} if KERAS3 else {}),
}


class Subclassed(keras.Model):  # type: ignore[misc,name-defined]
    """A model that is built by its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = layers.Dense(6, activation="tanh"), layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.outer(self.inner(inputs))


def config_of(folder: pathlib.Path) -> Any:
    """What both workers are given."""
    return tfvolta.load_config(
        strategy={"kind": "multi_worker_mirrored"},
        communication={"pack_mb": 1, "timeout_seconds": 300},
        xla={"jit": "auto"},
        run={"directory": str(folder / "runs")},
    )


def keep(folder: pathlib.Path, name: str, role: str, model: Any) -> None:
    np.savez(folder / f"{name}.{role}.npz", *model.get_weights())


def arrays(strategy: Any, folder: pathlib.Path, role: str, seed: int) -> dict[str, Any]:
    """Arrays with a smaller last batch, class weights, validation, and a learning rate that falls with the logs."""
    with strategy.scope():
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(optimizers.SGD(0.05), loss, metrics=["mae"], jit_compile=False)
    rate = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=0, min_delta=10.0)
    history = model.fit(
        X[:200],
        (Y[:200, 0] > 0).astype("float32"),
        batch_size=BATCH,
        epochs=3,
        shuffle=False,
        class_weight={0: 1.0, 1: 3.0},
        validation_data=(X[200:280], (Y[200:280, 0] > 0).astype("float32"), np.abs(X[200:280, 0])),
        callbacks=[rate],
        verbose=0,
    ).history
    keep(folder, "arrays", role, model)
    found = {key: [float(value) for value in values] for key, values in history.items()}
    return {**found, **counts(model), "predicted": np.ravel(model.predict(X[:40], verbose=0)).tolist()}


def files(strategy: Any, config: Any, folder: pathlib.Path) -> dict[str, Any]:
    """Callbacks that write, given the same paths on every worker, in a fit with tfvolta's callbacks."""
    with strategy.scope():
        model = dense()
        model.compile(optimizers.SGD(0.05), "mse", jit_compile=False)
    name = "best.keras" if KERAS3 else "best.h5"
    saver = keras.callbacks.ModelCheckpoint(str(folder / name), monitor="loss", save_best_only=True)
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup"))
    log = keras.callbacks.CSVLogger(str(folder / "log.csv"))
    seen: list[dict[str, bool]] = []

    class Looks(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append({each: (folder / each).exists() for each in (name, "backup", "log.csv")})

    own = [saver, backup, *([log] if KERAS3 else []), Looks()]
    model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[*tfvolta.build_callbacks(config), *own])
    session = session_for(config)
    return {
        "after the last epoch": seen[-1],
        "own paths": [str(saver.filepath), str(log.filename)],
        "loaded": keras.models.load_model(str(folder / name)).count_params() == model.count_params(),
        "outcomes": {key: ending.outcome.to_json() for key, ending in session.endings.items()},
    }


def main(folder: pathlib.Path, mode: str) -> dict[str, Any]:
    strategy, role, seed, config = tf.distribute.get_strategy(), "alone", 7, config_of(folder)
    if mode == "workers":
        index = int(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
        strategy, role, seed = tfvolta.build_strategy(config), f"worker{index}", 7 + index
    found: dict[str, Any] = {"role": role, "replicas": strategy.num_replicas_in_sync}
    for name, make in CASES.items():
        model, values = make().trained(strategy, seed)
        keep(folder, name, role, model)
        found[name] = {**values, **counts(model)}
    found["arrays"] = arrays(strategy, folder, role, seed)
    found["reduction"] = reduction(strategy, lambda name, model: keep(folder, name, role, model))
    if mode == "workers":
        found["same object"] = tfvolta.build_strategy(config) is strategy
        found["files"] = files(strategy, config, folder)
    return found


if __name__ == "__main__":
    try:
        print("RESULT " + json.dumps(main(pathlib.Path(sys.argv[1]), sys.argv[2])), flush=True)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
