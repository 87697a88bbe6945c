"""The CallbackList for Keras 2: what callbacks see, and that looking at nothing costs no synchronisation."""

from __future__ import annotations

import copy
import json
from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tfvolta.bridge.keras2_logs import LazyLogs

L = keras.layers
BRIDGE = models.bridge()
HOOKS = [
    f"on_{mode}_{moment}"
    for mode in ("train", "test", "predict")
    for moment in ("begin", "end", "batch_begin", "batch_end")
]
HOOKS += ["on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end", "set_model", "set_params"]


def tiny() -> Any:
    """One dense layer on images."""
    return keras.Sequential([L.Flatten(input_shape=(8, 8, 3)), L.Dense(models.CLASSES, activation="softmax")])


class Duck:
    """A callback that is none of Keras's, as tfvolta's own are."""

    _supports_tf_logs = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        for name in HOOKS:
            setattr(self, name, self._record(name))

    def _record(self, name: str) -> Any:
        return lambda *args: self.calls.append(name)

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def _implements_predict_batch_hooks(self) -> bool:
        return True


class Silent(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """A user's callback with batch hooks that looks at no log."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Nothing."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Nothing."""


class Reader(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """A user's callback that keeps the losses."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps what a log is."""
        self.seen.append(logs["loss"])


@pytest.fixture
def conversions(monkeypatch: Any) -> Iterator[list[int]]:
    """Counts how often Keras turns tensors of logs into numbers."""
    counted: list[int] = []
    utils = BRIDGE.package.tf_utils
    original = utils.sync_to_numpy_or_python_type

    def count(logs: Any) -> Any:
        if any(isinstance(value, tf.Tensor) for value in tf.nest.flatten(logs)):
            counted.append(1)
        return original(logs)

    monkeypatch.setattr(utils, "sync_to_numpy_or_python_type", count)
    yield counted


def fit(model: Any, callbacks: Any, lazy: bool = True, **arguments: Any) -> Any:
    """A fit of eight steps with the bridge's CallbackList, or with Keras's."""
    x, y = models.data(model)
    settings = {"batch_size": 8, "verbose": 0, "epochs": 1, **arguments}
    given = BRIDGE.callback_list(callbacks, model, x=x, y=y, **settings) if lazy else callbacks
    return model.fit(x, y, callbacks=given, **settings)


def test_a_callback_that_looks_at_nothing_costs_no_conversion(conversions: list[int]) -> None:
    model = models.compiled(tiny)
    counts = {}
    for name, callbacks, lazy in (
        ("none", [], False),
        ("stock", [Duck(), Silent()], False),
        ("duck", [Duck()], False),
        ("lazy", [Duck(), Silent()], True),
        ("read", [Duck(), Silent(), Reader(), Reader()], True),
    ):
        conversions.clear()
        fit(model, callbacks, lazy)
        counts[name] = len(conversions)
    assert counts["stock"] >= 8  # what Keras 2 does: every batch
    assert counts["duck"] == counts["none"]
    assert counts["lazy"] == counts["none"]
    assert counts["read"] == counts["none"] + 8  # once a batch for all that look


def test_readers_see_numbers_and_the_same_ones_as_in_keras() -> None:
    model, readers = models.compiled(tiny), [Reader(), Reader()]
    weights = model.get_weights()
    fit(model, [Silent(), readers[0]], lazy=False, shuffle=False)
    model = models.compiled(tiny)
    model.set_weights(weights)
    fit(model, [Silent(), readers[1]], lazy=True, shuffle=False)
    assert readers[0].seen == readers[1].seen
    assert all(isinstance(value, (float, np.floating)) for value in readers[1].seen)


@pytest.mark.parametrize("lazy", [False, True])
def test_objects_that_are_no_keras_callbacks_are_accepted(lazy: bool) -> None:
    model, duck = models.compiled(tiny), Duck()
    x, y = models.data(model)
    history = fit(model, [duck], lazy, verbose=0, validation_data=(x[:8], y[:8]))
    assert set(history.history) == {"loss", "val_loss"}
    assert {"set_model", "set_params", "on_train_begin", "on_epoch_end", "on_test_batch_end"} <= set(duck.calls)
    assert duck.calls.count("on_train_batch_end") == 8


def test_history_progress_bar_and_parameters_are_those_of_fit(capsys: Any) -> None:
    x, y = models.IMAGES, models.LABELS

    class Parameters(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_begin(self, logs: Any = None) -> None:
            shown.append(dict(self.params))

    shown: list[dict[str, Any]] = []
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    class Batches(keras.utils.Sequence):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return x[:8], y[:8]

    cases: list[dict[str, Any]] = [
        {"x": x, "y": y, "batch_size": 8},
        {"x": x, "y": y},
        {"x": x, "y": y, "batch_size": 10, "validation_split": 0.25},
        {"x": dataset},
        {"x": dataset.repeat(), "steps_per_epoch": 3},
        {"x": Batches()},
    ]
    for case in cases:
        model = models.compiled(tiny)
        for verbose in (1, 2):
            model.fit(**case, verbose=verbose, epochs=2, callbacks=[Parameters()])
            stock = capsys.readouterr().out
            given = BRIDGE.callback_list([Parameters()], model, **case, verbose=verbose, epochs=2)
            history = model.fit(**case, verbose=verbose, epochs=2, callbacks=given)
            lazy = capsys.readouterr().out
            assert shown[-1] == shown[-2]
            assert len(history.history["loss"]) == 2
            assert lazy.count("Epoch") == stock.count("Epoch")
            assert lazy.count("loss: ") > 0


def test_a_ready_list_is_handed_back() -> None:
    model = models.compiled(tiny)
    ready = keras.callbacks.CallbackList([], model=model)
    assert BRIDGE.callback_list(ready, model) is ready


def test_what_a_callback_writes_reaches_the_ones_after_it() -> None:
    seen: list[Any] = []

    class Writer(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            logs["extra"] = logs["loss"] * 2

    class Watch(Silent):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((self._supports_tf_logs, float(logs["extra"]) == 2 * float(logs["loss"])))

    flagged = Watch()
    flagged._supports_tf_logs = True
    fit(models.compiled(tiny), [Writer(), flagged, Watch()])
    assert seen == [(True, True), (False, True)] * 8


def test_lazy_logs_are_a_dict_however_they_are_read() -> None:
    def fresh() -> tuple[LazyLogs, list[int]]:
        counted: list[int] = []

        def convert(tensors: Any) -> Any:
            counted.append(1)
            return {key: float(value) for key, value in tensors.items()}

        tensors = {"loss": tf.constant(1.5), "accuracy": tf.constant(0.5)}
        return LazyLogs(tensors, convert, dict(tensors)), counted

    expected = {"loss": 1.5, "accuracy": 0.5}
    reads: dict[str, Any] = {
        "dict": dict,
        "unpack": lambda logs: {**logs},
        "json": lambda logs: json.loads(json.dumps(logs)),
        "items": lambda logs: dict(logs.items()),
        "values": lambda logs: dict(zip(logs, logs.values())),
        "get": lambda logs: {"loss": logs.get("loss"), "accuracy": logs.get("accuracy")},
        "copy": lambda logs: logs.copy(),
        "copy.copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "or": lambda logs: logs | {},
        "comprehension": lambda logs: {key: logs[key] for key in logs},
        "pop": lambda logs: {"loss": logs.pop("loss"), "accuracy": logs.pop("accuracy")},
        "popitem": lambda logs: dict([logs.popitem(), logs.popitem()]),
        "repr": lambda logs: json.loads(repr(logs).replace("'", '"')),
        "format": lambda logs: {"loss": float("{loss:.1f}".format(**logs)), "accuracy": 0.5},
        "nest": lambda logs: tf.nest.map_structure(float, logs),
    }
    for name, read in reads.items():
        logs, counted = fresh()
        assert (len(logs), "loss" in logs, list(logs.keys()), bool(logs), isinstance(logs, dict)) == (
            2,
            True,
            ["loss", "accuracy"],
            True,
            True,
        )
        assert counted == []  # none of these needs a value
        assert read(logs) == expected, name
        assert len(counted) == 1, name
    logs, counted = fresh()
    assert logs == expected
    assert logs.setdefault("loss", 3.0) == 1.5
    logs.update(more=2.0)
    del logs["loss"]
    assert dict(logs) == {"accuracy": 0.5, "more": 2.0}
    logs.clear()
    assert not logs
    assert len(counted) == 1
