"""Cost per training batch of all callbacks of a full plan, on the Keras of this process; see README.md next to it."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import importlib
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import warnings
from typing import Any, Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfvolta.bridge import bridge_for, stack_of  # noqa: E402
from tfvolta.callbacks.build import session_callbacks  # noqa: E402
from tfvolta.config import load_config  # noqa: E402
from tfvolta.facts.probe import probe  # noqa: E402
from tfvolta.measure.statistics import bootstrap_median, mad, median, paired_difference  # noqa: E402
from tfvolta.session import Session  # noqa: E402

SHORT, LONG = 200, 2200
CONVERSIONS = {
    "keras3": ("keras.src.utils.python_utils", "pythonify_logs"),
    "tf_keras": ("tf_keras.src.utils.tf_utils", "sync_to_numpy_or_python_type"),
    "keras2": ("keras.src.utils.tf_utils", "sync_to_numpy_or_python_type"),
}


def make_model(keras: Any) -> Any:
    """A model whose step is short, so that what surrounds it shows."""
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def make_data(steps: int) -> Any:
    """So many batches of four rows, held in memory."""
    x = np.random.default_rng(0).normal(size=(4 * steps, 8)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4, drop_remainder=True).cache()


def full_session(directory: str) -> Session:
    """A plan with every kind of callback that works on a CPU, and evidence on disk as in a real run."""
    return Session(
        load_config(
            run={"directory": directory},
            mixed_precision={"policy": "mixed_float16"},
            xla={"jit": "model"},
            monitor={"throughput": True, "memory": True, "loss_scale": True},
        )
    )


def empty_step(model: Any) -> None:
    """Makes ``fit`` call a train function that returns the last logs at once, so that only the loop around it is timed.

    The traced function stays in its closure: the plan finds and verifies it there as it would in any fit.
    """
    traced = model.train_function
    logs = {"loss": tf.constant(1.0)}

    def step(iterator: Any) -> Any:
        return logs if iterator is not None else traced(iterator)

    def make_train_function(force: bool = False) -> Any:
        model.train_function = step
        return step

    model.make_train_function = make_train_function
    model.make_train_function()


def conditions(model: Any, callbacks: list[Any]) -> dict[str, Callable[[], Any]]:
    """What ``fit`` is given, by name."""
    bridge = bridge_for(model)
    given: dict[str, Callable[[], Any]] = {"none": lambda: None, "plan": lambda: list(callbacks)}
    if bridge.stack == "keras3":
        given["lazy"] = lambda: bridge.callback_list([], model, verbose=0)
        given["lazy_plan"] = lambda: bridge.callback_list(list(callbacks), model, verbose=0)
    return given


def timed_fit(model: Any, data: Any, callbacks: Any) -> tuple[float, float]:
    """Wall seconds and processor seconds of this thread for one epoch."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.thread_time()
    model.fit(data, verbose=0, callbacks=callbacks)
    return time.perf_counter() - wall, time.thread_time() - cpu


def measure(model: Any, given: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """Microseconds per batch, wall and processor, of each condition; one pair per repetition."""
    short, long = make_data(SHORT), make_data(LONG)
    order = random.Random(0)
    for data in (short, long):
        for callbacks in given.values():
            timed_fit(model, data, callbacks())
    result: dict[str, list[tuple[float, float]]] = {name: [] for name in given}
    for repetition in range(repetitions):
        seconds: dict[tuple[str, bool], tuple[float, float]] = {}
        cells = [(name, is_long) for name in given for is_long in (False, True)]
        order.shuffle(cells)
        for name, is_long in cells:
            seconds[name, is_long] = timed_fit(model, long if is_long else short, given[name]())
        for name in given:
            wall, cpu = (1e6 * (b - a) / (LONG - SHORT) for a, b in zip(seconds[name, False], seconds[name, True]))
            result[name].append((wall, cpu))
        print(f"{repetition + 1}/{repetitions}", end="\r", file=sys.stderr, flush=True)
    return result


@contextlib.contextmanager
def counted(stack: str) -> Iterator[list[int]]:
    """Counts Keras's log conversions."""
    module_name, name = CONVERSIONS[stack]
    module = importlib.import_module(module_name)
    plain, count = getattr(module, name), [0]

    def counting(*arguments: Any) -> Any:
        count[0] += bool(arguments[0])  # hooks without logs have nothing to convert
        return plain(*arguments)

    setattr(module, name, counting)
    try:
        yield count
    finally:
        setattr(module, name, plain)


def count_conversions(model: Any, given: dict[str, Callable[[], Any]], stack: str) -> dict[str, dict[str, int]]:
    """Log conversions in a short and a long epoch of each condition."""
    counts: dict[str, dict[str, int]] = {}
    for name, callbacks in given.items():
        counts[name] = {}
        for steps in (SHORT, LONG):
            with counted(stack) as count:
                model.fit(make_data(steps), verbose=0, callbacks=callbacks())
            counts[name][str(steps)] = count[0]
    return counts


def figures(pairs: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Step times of each condition, and the differences that the question asks for."""
    steps, costs = {}, {}
    for index, clock in enumerate(("wall", "thread_cpu")):
        times = {name: [pair[index] for pair in values] for name, values in pairs.items()}
        steps[clock] = {
            name: {**bootstrap_median(values).to_json(), "mad": mad(values)} for name, values in times.items()
        }
        asked = [("plan", "none"), ("lazy", "none"), ("lazy_plan", "lazy"), ("lazy_plan", "none")]
        costs[clock] = {
            f"{a} - {b}": {
                **paired_difference(times[a], times[b]).to_json(),
                "mad": mad([x - y for x, y in zip(times[a], times[b])]),
            }
            for a, b in asked
            if a in times
        }
    return {"step_microseconds": steps, "cost_microseconds_per_batch": costs}


def main() -> None:
    """Measures this process's stack and writes its result."""
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--step", choices=("empty", "real"), default="empty", help="what the train function does")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    arguments = parser.parse_args()
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as directory:
        session = full_session(directory)
        model = make_model(tf.keras)
        stack = stack_of(model)
        callbacks = session_callbacks(session)
        model.fit(make_data(10), verbose=0, callbacks=list(callbacks))
        if arguments.step == "empty":
            empty_step(model)
        given = conditions(model, callbacks)
        conversions = count_conversions(model, given, stack)
        pairs = measure(model, given, arguments.repetitions)
        session.close()
    facts = probe()
    prefix = "TF_USE_LEGACY_KERAS=1 " if stack == "tf_keras" else ""
    result = {
        "stack": stack,
        "command": prefix + " ".join(["python", "benchmarks/callback_overhead/measure.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": {"cpu": facts.cpu.model_dump(), "python": sys.version.split()[0]},
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "versions": {
            "tensorflow": tf.__version__,
            "keras": bridge_for(model).keras.__version__,
            "numpy": np.__version__,
        },
        "outcomes": {name: ending.outcome.status.value for name, ending in session.endings.items()},
        "callbacks": [type(callback).__name__ for callback in callbacks],
        "repetitions": arguments.repetitions,
        "train_function": arguments.step,
        "steps": {"short": SHORT, "long": LONG},
        "log_conversions": conversions,
        **figures(pairs),
        "raw_microseconds_per_batch": {
            name: {"wall": [w for w, _ in values], "thread_cpu": [c for _, c in values]}
            for name, values in pairs.items()
        },
    }
    path = arguments.out / f"{stack}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    for clock, costs in result["cost_microseconds_per_batch"].items():
        for name, cost in costs.items():
            print(
                f"{stack} {clock:10} {name}: {cost['estimate']:7.2f} us/batch [{cost['low']:.2f}, {cost['high']:.2f}]"
            )
    print(f"step without callbacks: {median([w for w, _ in pairs['none']]):.1f} us wall; conversions {conversions}")


if __name__ == "__main__":
    main()
