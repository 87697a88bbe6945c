"""Step time of a model with all monitors of numbers on against off, interleaved; see README.md next to it."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import random
import sys
import tempfile
import time
from typing import Any, Optional, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfvolta.bridge import bridge_for, stack_of  # noqa: E402
from tfvolta.callbacks.base import Callback  # noqa: E402
from tfvolta.callbacks.build import session_callbacks  # noqa: E402
from tfvolta.config import load_config  # noqa: E402
from tfvolta.measure.statistics import paired_ratio  # noqa: E402
from tfvolta.session import Origin, Session  # noqa: E402


class Clock(Callback):
    """Seconds of the steps of an epoch after the first ones; the device has finished at both ends.

    Attributes:
        seconds: Of the last epoch.
        steps: Steps that they cover.
    """

    def __init__(self, warmup: int):
        super().__init__()
        self.seconds, self.steps = 0.0, 0
        self._warmup = warmup
        self._batches, self._began = 0, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts counting."""
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Starts the clock after the first steps, in which functions are traced and compiled."""
        self._batches += 1
        if self._batches == self._warmup:
            self._wait()
            self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stops the clock."""
        self._wait()
        self.seconds, self.steps = time.perf_counter() - self._began, self._batches - self._warmup

    def _wait(self) -> None:
        np.asarray(self.bridge.own_variables(self.model.layers[-1])[0])  # the last weights of the step before


def make_model(keras: Any, kind: str) -> tuple[Any, tuple[int, ...], int]:
    """A model, the shape of its inputs and the number of its classes."""
    if kind == "resnet50":
        return keras.applications.ResNet50(weights=None, classes=1000), (224, 224, 3), 1000
    layers = keras.layers
    head = [layers.GlobalAveragePooling2D(), layers.Dense(10, activation="softmax", dtype="float32")]
    body = [layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization()]
    return keras.Sequential([keras.Input((8, 8, 3)), *body, *head]), (8, 8, 3), 10


def make_data(shape: tuple[int, ...], classes: int, batch: int) -> Any:
    """One batch, again and again, from the memory of the host as in training."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(batch, *shape)).astype("float32")
    y = generator.integers(0, classes, size=batch).astype("int32")
    return tf.data.Dataset.from_tensors((x, y)).repeat().prefetch(2)


def variants(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Sections of the config by name: without monitors, and with all of them, looking for alarms at each interval."""
    watch = {"gradient_monitor": {"every_steps": arguments.gradients_every}, "monitor": {"loss_scale": True}}
    found: dict[str, dict[str, Any]] = {"off": {"monitor": {"loss_scale": False}}}
    found["gradients"] = dict(watch)
    for every in arguments.alarms_every:
        alarms = {"nan_loss": "report", "max_skipped_in_row": 100, "min_loss_scale": 2.0, "action": "report"}
        found[f"all, alarms every {every}"] = {**watch, "alarms": {**alarms, "every_steps": every}}
    return found


class Contender:
    """One model with one variant's callbacks, kept from fit to fit so that it is traced once."""

    def __init__(self, keras: Any, arguments: argparse.Namespace, sections: dict[str, Any], folder: str):
        monitor = {"throughput": False, "memory": False, **sections.get("monitor", {})}
        config = load_config(
            **{
                **sections,
                "run": {"directory": folder, "strict": False},
                "mixed_precision": {"policy": "mixed_float16"},
                "xla": {"jit": arguments.jit},
                "monitor": monitor,
            }
        )
        self._session = Session(config, origin=Origin(record=arguments.record))
        keras.utils.set_random_seed(0)
        self._model, shape, classes = make_model(keras, arguments.model)
        self._model.compile(
            keras.optimizers.SGD(0.01, momentum=0.9),
            "sparse_categorical_crossentropy",
            steps_per_execution=arguments.steps_per_execution,
        )
        self._data = make_data(shape, classes, arguments.batch)
        self._arguments = arguments

    def step_seconds(self) -> float:
        """Trains an epoch; seconds of a step."""
        clock = Clock(self._arguments.warmup // self._arguments.steps_per_execution)
        callbacks = [*session_callbacks(self._session), clock]
        callbacks = bridge_for(self._model).callback_list(callbacks, self._model, epochs=1, verbose=0)
        self._model.fit(self._data, steps_per_epoch=self._arguments.steps, epochs=1, verbose=0, callbacks=callbacks)
        return clock.seconds / (clock.steps * self._arguments.steps_per_execution)


def main(given: Optional[Sequence[str]] = None) -> list[dict[str, Any]]:
    """Measures, and prints a JSON line for each fit and one for each variant against ``off``."""
    arguments = _parser().parse_args(given)
    import keras as plain

    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") and not tf.__version__.startswith("2.15"):
        import tf_keras as plain
    order = random.Random(0)
    rows: list[dict[str, Any]] = []
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        made = {name: Contender(plain, arguments, each, folder) for name, each in variants(arguments).items()}
        for number in range(-1, arguments.rounds):  # the first round traces and compiles
            names = order.sample(list(made), len(made))
            for name in names:
                value = made[name].step_seconds()
                if number >= 0:
                    seconds.setdefault(name, []).append(value)
                    row = {"round": number, "variant": name, "step_ms": value * 1e3}
                    rows.append(_printed({**row, "images_per_second": arguments.batch / value}, arguments))
    for name, values in seconds.items():
        if name != "off":
            ratio = paired_ratio(values, seconds["off"])
            cost = {"cost_percent": (ratio.estimate - 1) * 100, "low": (ratio.low - 1) * 100}
            cost["high"] = (ratio.high - 1) * 100
            rows.append(_printed({"variant": name, "against": "off", **cost, **_place(plain, arguments)}, arguments))
    return rows


def _printed(row: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    line = json.dumps(row)
    print(line, flush=True)
    if arguments.output is not None:
        with open(arguments.output, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    return row


def _place(keras: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Where and how it was measured."""
    details = [tf.config.experimental.get_device_details(each) for each in tf.config.list_physical_devices("GPU")]
    return {
        "stack": stack_of(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])),
        "tensorflow": tf.__version__,
        "device": details[0].get("device_name", "GPU") if details else "CPU",
        "load_average": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **{key: value for key, value in vars(arguments).items() if key != "output"},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("resnet50", "tiny"), default="resnet50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=220, help="calls of the train function in a fit")
    parser.add_argument("--warmup", type=int, default=20, help="first batches of a fit that are not timed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jit", choices=("off", "model", "auto"), default="off")
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument("--gradients-every", type=int, default=100)
    parser.add_argument("--alarms-every", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--record", action="store_true", help="write evidence files as in a run")
    parser.add_argument("--output", help="file that the lines are added to")
    return parser


if __name__ == "__main__":
    main()
