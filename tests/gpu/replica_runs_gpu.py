"""Trains small models on one GPU and on two, each step compiled by XLA, and prints how far apart they end, as JSON.

Run as ``python -m tests.gpu.replica_runs_gpu``; with TF_CONFIG it is one of two workers, each with one GPU.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import numpy as np

import tfvolta
from tests.stack import STACK, keras, tf
from tests.tensorflow.reduction_models import BATCH, EVERY, compiled, fit, seen
from tests.tensorflow.replica_runs import BRIDGE, Case, X, counts, difference, embedded, overflow, sgd, wide
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.session import session_for

optimizers = keras.optimizers
DYNAMIC = LossScaleSettings(initial=1024.0)


def cases() -> dict[str, Case]:
    return {
        "sgd": Case(evaluates=True, jit_compile=True),
        "adam": Case(lambda: optimizers.Adam(0.01), jit_compile=True),
        "mixed": Case(scale=LossScaleSettings(fixed=128.0), mixed=True, jit_compile=True),
        "scaled and clipped": Case(sgd(global_clipnorm=0.1), scale=DYNAMIC, jit_compile=True),
        "overflow on the last": Case(scale=DYNAMIC, x=overflow(1, 2), jit_compile=True),
        "embedding": Case(make=embedded, x=np.abs(X * 3).astype("int32") % 10, jit_compile=True),
        "several steps a call": Case(steps_per_execution=3, jit_compile=True),
        "packs": Case(lambda: optimizers.SGD(1e-4), make=wide, jit_compile=True),
    }


def config_of(kind: str) -> Any:
    return tfvolta.load_config(
        strategy={"kind": kind},
        communication={"pack_mb": 1},
        xla={"jit": "auto"},
        math={"tf32": False},
        run={"directory": "runs", "strict": False},
    )


def planned(strategy: Any, config: Any) -> dict[str, Any]:
    """A fit with tfvolta's callbacks: how its settings ended, and whether all copies of the weights are equal."""
    with strategy.scope():
        keras.utils.set_random_seed(7)
        model = wide()
        model.compile(optimizers.Adam(0.001), "mse")
    y = X[:, :1]
    model.fit(X, y, batch_size=16, verbose=0, shuffle=False, callbacks=tfvolta.build_callbacks(config, model))
    copies = [strategy.experimental_local_results(variable) for variable in raw(model)]
    spread = max(float(np.max(np.abs(each[0].numpy() - other.numpy()))) for each in copies for other in each)
    outcomes = {name: ending.outcome.to_json() for name, ending in session_for(config).endings.items()}
    total = [float(np.sum(weight)) for weight in model.get_weights()]
    return {"spread": spread, "outcomes": outcomes, "sums": total}


def reduced(strategy: Any) -> dict[str, Any]:
    """Windows and float16 gradients in steps that XLA compiles, against one GPU with batches as large as a window."""
    found: dict[str, Any] = {}
    asked: dict[str, dict[str, Any]] = {
        "window": {"every": EVERY},
        "half": {"compression": "fp16"},
        "half window": {"every": EVERY, "compression": "fp16"},
    }
    for name, settings in asked.items():
        both: dict[str, Any] = {"scale": {"initial": 1024.0}, "jit_compile": True}
        alone = fit(compiled(tf.distribute.get_strategy(), **both), BATCH * settings.get("every", 1))
        model = fit(compiled(strategy, **both), BATCH, **settings)
        found[name] = {
            "difference": difference(model, alone),
            "compiled_on": list(BRIDGE.train_graph(model).compiled_on),
            **seen(model),
        }
    return found


def raw(model: Any) -> list[Any]:
    """TensorFlow's own variables of a model."""
    return [variable.value if STACK == "keras3" else variable for variable in model.trainable_variables]


def main() -> dict[str, Any]:
    if "TF_CONFIG" in os.environ:
        config = config_of("multi_worker_mirrored")
        strategy = tfvolta.build_strategy(config)
        return {"replicas": strategy.num_replicas_in_sync, "planned": planned(strategy, config)}
    tf.config.experimental.enable_tensor_float_32_execution(False)
    config = config_of("mirrored")
    strategy = tfvolta.build_strategy(config)
    found: dict[str, Any] = {"replicas": strategy.num_replicas_in_sync, "planned": planned(strategy, config)}
    for name, case in cases().items():
        alone, reference = case.trained(tf.distribute.get_strategy())
        model, values = case.trained(strategy)
        graph = BRIDGE.train_graph(model)
        found[name] = {
            "alone": {**reference, **counts(alone)},
            "replicas": {**values, **counts(model)},
            "difference": difference(model, alone),
            "compiled_on": list(graph.compiled_on),
            "hints": dict(graph.hints),
        }
    found["reduction"] = reduced(strategy)
    return found


if __name__ == "__main__":
    try:
        print("RESULT " + json.dumps(main()), flush=True)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
