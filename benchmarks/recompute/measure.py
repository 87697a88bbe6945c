"""Peak memory and step time with activations kept and computed again, each in a process of its own; see README.md.

One JSON line a run goes to the output; a run that fails or takes too long gives a line too.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
SIZES = {"tokens": 128, "width": 1024, "heads": 16, "blocks": 24, "vocabulary": 30522, "pixels": 224}
DEFAULT_BATCHES = {"transformer": [32, 64], "resnet152": [64, 128]}


def arguments() -> argparse.Namespace:
    """The command line; defaults are the sizes of BERT-large and ResNet-152."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(DEFAULT_BATCHES), choices=list(DEFAULT_BATCHES))
    parser.add_argument("--batches", nargs="+", type=int, help="for every model; by default 32 and 64, or 64 and 128")
    parser.add_argument("--every", nargs="+", type=int, help="blocks in a segment; by default one number a model")
    parser.add_argument("--budget-mb", nargs="+", type=int, default=[], help="budgets to try besides")
    parser.add_argument("--policies", nargs="+", default=["mixed_float16"])
    parser.add_argument("--jit", nargs="+", default=["off"], choices=["off", "on"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--limit-seconds", type=int, default=300, help="for one run, compilation included")
    parser.add_argument("--output", help="file that lines are added to; standard output in any case")
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def plans(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every run, plain before recomputed."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    every = {"transformer": [4], "resnet152": [6]}
    found = []
    for model in options.models:
        ways: list[dict[str, int]] = [{}]
        ways += [{"every": count} for count in options.every or every[model]]
        ways += [{"budget_mb": budget} for budget in options.budget_mb]
        for policy in options.policies:
            for jit in options.jit:
                for batch in options.batches or DEFAULT_BATCHES[model]:
                    found += [
                        {"model": model, "policy": policy, "jit": jit, "batch": batch, "recompute": way} for way in ways
                    ]
    return found


def run_one(plan: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Runs one plan in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(plan)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_seconds, env=environ)
    except subprocess.TimeoutExpired:
        return {**plan, "failed": f"not done within {options.limit_seconds} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {**plan, "failed": done.stderr.strip()[-600:], "seconds": round(time.monotonic() - started, 1)}
    return {**plan, **json.loads(lines[-1][len("RESULT ") :]), "seconds": round(time.monotonic() - started, 1)}


def measured(plan: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Trains in this process; figures of it."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import tensorflow as tf
    from workload import MODELS, data_of, keras_of_process

    from tfvolta.callbacks import GradientCheckpointing

    keras = keras_of_process()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.mixed_precision.set_global_policy(plan["policy"])
    size = {name: getattr(options, name) for name in SIZES}
    keras.utils.set_random_seed(1)
    model = MODELS[plan["model"]](keras, size)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-5), loss, jit_compile=plan["jit"] == "on")
    clock = _clock(keras)
    callback = GradientCheckpointing(**plan["recompute"]) if plan["recompute"] else None
    callbacks = [clock] if callback is None else [callback, clock]
    data = data_of(plan["model"], size, plan["batch"], options.warmup + options.steps)
    history = model.fit(data, verbose=0, callbacks=callbacks)
    times = [after - before for before, after in zip(clock.times, clock.times[1:])][options.warmup - 1 :]
    result = {
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "device": _device(tf),
        "parameters": model.count_params(),
        "step_ms": round(1000 * statistics.median(times), 3),
        "step_ms_spread": [round(1000 * value, 3) for value in (min(times), max(times))],
        "loss": history.history["loss"][-1],
        **_memory(tf),
    }
    if callback is not None:
        outcome = callback.session.endings["recompute"].outcome
        result["outcome"] = {"status": outcome.status.value, "message": outcome.message}
        result["estimated_saved_bytes"] = outcome.observed.get("saved_bytes")
        result["segments"] = len(outcome.observed.get("segments", ()))
    return result


def _clock(keras: Any) -> Any:
    class Clock(keras.callbacks.Callback):
        """When each step was over; reading the loss waits for the device."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            float((logs or {}).get("loss", 0.0))
            self.times.append(time.perf_counter())

    return Clock()


def _device(tf: Any) -> str:
    gpus = tf.config.list_physical_devices("GPU")
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name")) if gpus else "CPU"


def _memory(tf: Any) -> dict[str, Any]:
    """Peak bytes of the first GPU, and what of them is neither weights nor the optimiser's state."""
    if not tf.config.list_logical_devices("GPU"):
        return {"peak_bytes": None, "why": "TensorFlow counts no bytes on a CPU"}
    info = tf.config.experimental.get_memory_info("GPU:0")
    return {
        "peak_bytes": info["peak"],
        "resident_bytes": info["current"],
        "above_bytes": info["peak"] - info["current"],
    }


def main() -> None:
    """Runs every plan, and prints the ratios of each to the plain run before it."""
    options = arguments()
    if options.one:
        print("RESULT " + json.dumps(measured(json.loads(options.one), options)))
        return
    plain: dict[str, Any] = {}
    for plan in plans(options):
        found = run_one(plan, options)
        if not plan["recompute"]:
            plain = found
        elif found.get("step_ms") and plain.get("step_ms"):
            found["time_ratio"] = round(found["step_ms"] / plain["step_ms"], 3)
            if found.get("above_bytes") and plain.get("above_bytes"):
                found["memory_ratio"] = round(found["above_bytes"] / plain["above_bytes"], 3)
        line = json.dumps(found)
        print(line, flush=True)
        if options.output:
            with open(options.output, "a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
