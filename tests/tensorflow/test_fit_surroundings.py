"""Ending the epochs of a running fit earlier, and the callbacks that are called together with one; on every Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import keras, tf
from tfvolta.bridge.callback_lists import list_of, remove_others
from tfvolta.bridge.epoch_length import end_epochs_after
from tfvolta.callbacks.base import Callback

X = np.arange(32, dtype="float32").reshape(32, 1)


class Recorder(Callback):
    """Ends epochs early and notes what was trained."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches, self.done, self.steps = batches, False, 0
        self.epochs: list[int] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.done = end_epochs_after(self.model, self.batches)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(self.steps)
        self.steps = 0


def make_model() -> Any:
    """Its loss is the mean of its inputs, whatever is trained."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones", name="identity")])
    model.compile(keras.optimizers.SGD(0.0), "mae", jit_compile=False)
    return model


@pytest.mark.parametrize("kind", ("arrays", "dataset", "unknown"))
def test_epochs_end_early_and_each_begins_with_the_data_anew(kind: str) -> None:
    recorder, zeros = Recorder(2), np.zeros_like(X)
    dataset = tf.data.Dataset.from_tensor_slices((X, zeros)).batch(4)
    data: tuple[Any, ...] = (X, zeros) if kind == "arrays" else (dataset,)
    if kind == "unknown":
        data = (dataset.filter(lambda x, y: True),)
    batch = {"batch_size": 4, "shuffle": False} if kind == "arrays" else {}
    history = make_model().fit(*data, epochs=3, verbose=0, callbacks=[recorder], **batch)
    assert recorder.done and recorder.epochs == [2, 2, 2]
    assert history.history["loss"] == pytest.approx([3.5, 3.5, 3.5])  # rows 0 to 7, in every epoch


def test_one_iterator_for_all_epochs_is_left_alone() -> None:
    recorder = Recorder(2)
    make_model().fit(X, X, batch_size=4, steps_per_epoch=4, epochs=2, verbose=0, callbacks=[recorder])
    assert not recorder.done and recorder.epochs == [4, 4]


def test_outside_of_a_fit_nothing_is_done() -> None:
    assert end_epochs_after(make_model(), 2) is False
    assert list_of(Recorder(1)) is None
    assert remove_others(Recorder(1), lambda callback: True) == []


class Alone(Callback):
    """Takes the progress bar and CSV loggers out of the list."""

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        names = ("ProgbarLogger", "CSVLogger")
        self.removed = remove_others(self, lambda callback: type(callback).__name__ in names)


@pytest.mark.parametrize("made", ("by fit", "by tfvolta"))
def test_callbacks_are_taken_out_before_they_are_called(made: str, tmp_path: Any, capsys: Any) -> None:
    from tfvolta.bridge import bridge_for

    model, alone, logger = make_model(), Alone(), keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    given: Any = [alone, logger, keras.callbacks.LambdaCallback()]
    if made == "by tfvolta":
        given = bridge_for(model).callback_list(given, model, deferred=True, verbose=2, epochs=1)
    capsys.readouterr()
    history = model.fit(X, X, batch_size=16, verbose=2, callbacks=given)
    assert sorted(type(each).__name__ for each in alone.removed) == ["CSVLogger", "ProgbarLogger"]
    assert not (tmp_path / "log.csv").exists() and "loss" not in capsys.readouterr().out
    assert "loss" in history.history  # Keras's own History stays
