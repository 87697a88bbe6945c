"""Keras 3: logs become numbers when a callback looks, and not before."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

from keras.src.utils import python_utils

from tfvolta.bridge.keras3_logs import LazyLogs

BRIDGE = bridge_for_stack(STACK)
X = np.random.RandomState(0).randn(48, 6).astype("float32")
Y = X[:, :1]


def mlp() -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


@pytest.fixture()
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keras's own conversions of logs that hold something, each a wait for the device."""
    made: list[int] = []
    original = python_utils.pythonify_logs

    def counted(logs: Any) -> Any:
        if logs:
            made.append(len(logs))
        return original(logs)

    monkeypatch.setattr(python_utils, "pythonify_logs", counted)
    return made


class Ignores(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.last = batch


@pytest.mark.parametrize("verbose", [0, 2])
def test_a_fit_converts_only_at_the_ends_of_epochs(verbose: int, conversions: list[int], capsys: Any) -> None:
    model = mlp()
    before = LazyLogs.conversions
    callbacks = BRIDGE.callback_list([Ignores()], model, verbose=verbose, epochs=2)
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=verbose, validation_data=(X, Y), callbacks=callbacks)
    assert LazyLogs.conversions == before  # 24 train and 24 test batches, none looked at
    assert len(conversions) == 5  # two ends of epochs, two of evaluations, one of training
    assert sorted(history.history) == ["loss", "mae", "val_loss", "val_mae"] and len(history.epoch) == 2
    conversions.clear()
    mlp().fit(X, Y, batch_size=4, epochs=2, verbose=verbose, validation_data=(X, Y), callbacks=[Ignores()])
    assert len(conversions) == 5 + 48  # what Keras does on its own


def test_the_same_history_with_and_without() -> None:
    lazy, plain = mlp(), mlp()
    ours = lazy.fit(X, Y, epochs=2, verbose=0, callbacks=BRIDGE.callback_list([], lazy, verbose=0, epochs=2)).history
    assert ours == plain.fit(X, Y, epochs=2, verbose=0).history


def test_the_progress_bar_knows_the_number_of_batches(capsys: Any) -> None:
    model = mlp()
    model.fit(X, Y, batch_size=4, verbose=1, callbacks=BRIDGE.callback_list([], model, verbose=1, epochs=1))
    out = capsys.readouterr().out
    assert "12/12" in out and "Unknown" not in out and "loss" in out and "mae" in out


def test_callbacks_see_floats_however_they_look() -> None:
    looks = {
        "item": lambda logs: logs["loss"],
        "get": lambda logs: logs.get("loss"),
        "dict": lambda logs: dict(logs)["loss"],
        "unpacked": lambda logs: {**logs}["loss"],
        "items": lambda logs: dict(logs.items())["loss"],
        "values": lambda logs: next(iter(logs.values())),
        "copy": lambda logs: logs.copy()["loss"],
        "copy.copy": lambda logs: copy.copy(logs)["loss"],
        "deepcopy": lambda logs: copy.deepcopy(logs)["loss"],
        "pickle": lambda logs: pickle.loads(pickle.dumps(logs))["loss"],
        "json": lambda logs: json.loads(json.dumps(logs))["loss"],
        "merged": lambda logs: (logs | {})["loss"],
        "updated": lambda logs: _updated(logs)["loss"],
        "loop": lambda logs: next(logs[key] for key in logs),
        "setdefault": lambda logs: logs.setdefault("loss", 0.0),
        "pop": lambda logs: logs.pop("loss"),
    }
    for name, look in looks.items():
        logs = LazyLogs({"loss": tf.constant(0.5), "nested": {"mae": tf.constant(0.25)}})
        assert isinstance(logs, dict) and "loss" in logs and len(logs) == 2 and list(logs) == ["loss", "mae"]
        value = look(logs)
        assert type(value) is float and value == 0.5, name
    logs = LazyLogs({"loss": tf.constant(0.5)})
    plain = {"loss": 0.5}
    assert logs == plain and plain == logs and repr(logs) == "{'loss': 0.5}"
    logs["extra"] = 1
    assert dict(logs) == {"loss": 0.5, "extra": 1}
    assert not LazyLogs({}) and LazyLogs({"text": "kept"})["text"] == "kept"


def _updated(logs: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    plain.update(logs)
    return plain


def test_one_conversion_a_batch_that_is_looked_at() -> None:
    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch % 4 == 0:
                assert type(logs["loss"]) is float and type(logs["mae"]) is float

    model = mlp()
    before = LazyLogs.conversions
    callbacks = BRIDGE.callback_list([Looks(), Looks()], model, verbose=0)
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=callbacks)
    assert LazyLogs.conversions - before == 3  # batches 0, 4 and 8, shared by both callbacks


def test_early_stopping_and_nan_termination_still_work() -> None:
    model = mlp()
    y = np.full_like(Y, np.nan)
    callbacks = BRIDGE.callback_list([keras.callbacks.TerminateOnNaN()], model, verbose=0, epochs=3)
    history = model.fit(X, y, batch_size=4, epochs=3, verbose=0, callbacks=callbacks)
    assert len(history.epoch) == 1
