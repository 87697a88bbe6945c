"""Step counts equal the optimizer's, whatever Keras calls the batches, and in fits that resume."""

from __future__ import annotations

import pathlib
from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import LossScaleMonitor, MixedPrecision, Throughput
from tfvolta.outcome import Status

X = np.random.RandomState(0).randn(66, 2).astype("float32")
Y = X[:, :1] * 0.5


def made(**arguments: Any) -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse", **{"jit_compile": False, **arguments})
    return model


def iterations(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


def batches(rows: int = 66, size: int = 6) -> Any:
    return tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(size)


def generated(count: int = 11) -> Iterator[tuple[Any, Any]]:
    for _ in range(count):
        yield X[:6], Y[:6]


SIGNATURE = (tf.TensorSpec((6, 2), tf.float32), tf.TensorSpec((6, 1), tf.float32))
DATA = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 6},
    "dataset": lambda: {"x": batches()},
    "partial last batch": lambda: {"x": batches(64)},
    "split": lambda: {"x": X, "y": Y, "batch_size": 5, "validation_split": 0.2},
    "validation": lambda: {"x": batches(), "validation_data": batches(30, 5)},
    "unknown size": lambda: {"x": batches().filter(lambda x, y: True)},
    "generator": lambda: {"x": tf.data.Dataset.from_generator(generated, output_signature=SIGNATURE)},
}
NO_SIZE = ("unknown size", "generator")  # Keras 2 refuses steps_per_execution for these


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("per_call", [1, 4, 16])
def test_steps_in_reports_are_the_optimizers(name: str, per_call: int) -> None:
    if name in NO_SIZE and per_call > 1 and not KERAS3:
        pytest.skip("Keras 2 needs the size of the data for several steps per execution")
    model = made(steps_per_execution=per_call)
    throughput, monitor = Throughput(), LossScaleMonitor()
    model.fit(**DATA[name](), epochs=3, verbose=0, callbacks=[throughput, monitor])
    assert iterations(model) == 33
    assert [epoch["steps"] for epoch in throughput.summary()["epochs"]] == [11, 11, 11]
    assert throughput.summary()["steps"] == monitor.summary()["applied"] == monitor.summary()["attempted"] == 33
    assert [record["applied"] for record in monitor.records] == [11, 22, 33]


@pytest.mark.parametrize("per_call", [1, 4, 16])
def test_steps_beyond_those_of_an_epoch_are_reported_as_they_are(per_call: int) -> None:
    """With data left, Keras 3 fills the last call: twelve steps where eleven were asked for."""
    model, throughput, monitor = made(steps_per_execution=per_call), Throughput(), LossScaleMonitor()
    model.fit(batches().repeat(), steps_per_epoch=11, epochs=2, verbose=0, callbacks=[throughput, monitor])
    assert iterations(model) == throughput.summary()["steps"] == monitor.summary()["applied"]


@pytest.mark.parametrize("per_call", [1, 3, 4, 16])
@pytest.mark.parametrize("size_known", [True, False] if KERAS3 else [True])
def test_every_so_many_batches_fires_at_or_after_each_multiple_and_never_twice(per_call: int, size_known: bool) -> None:
    model = made(steps_per_execution=per_call)
    monitor = LossScaleMonitor(every_batches=4)
    data = batches() if size_known else batches().filter(lambda x, y: True)
    model.fit(data, epochs=2, verbose=0, callbacks=[monitor])
    expected = {1: [3, 7], 3: [5, 8], 4: [3, 7], 16: [10]}[per_call]
    for epoch in (0, 1):
        records = [record for record in monitor.records if record["epoch"] == epoch and record["batch"] is not None]
        assert [record["batch"] for record in records] == expected
        assert [record["applied"] - 11 * epoch for record in records] == [batch + 1 for batch in expected]


def test_mixed_precision_and_skipped_steps_are_steps() -> None:
    model = made(steps_per_execution=4)
    callbacks = [MixedPrecision(initial_scale=2.0**40), Throughput(), LossScaleMonitor()]
    model.fit(batches(), epochs=2, verbose=0, callbacks=callbacks)
    counts = callbacks[2].summary()
    assert counts["attempted"] == callbacks[1].summary()["steps"] == 22
    assert counts["skipped"] > 0 and counts["applied"] + counts["skipped"] == 22


class Boom(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends training in the middle of an epoch, or at its start."""

    def __init__(self, epoch: int, batch: int | None) -> None:
        super().__init__()
        self.at, self.batch, self.epoch = epoch, batch, -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        if epoch == self.at and self.batch is None:
            raise RuntimeError("boom")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.epoch == self.at and batch == self.batch:
            raise RuntimeError("boom")


@pytest.mark.parametrize("precision", [False, True])
@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("batch", [None, 5])
def test_a_resumed_fit_counts_its_own_steps(
    tmp_path: pathlib.Path, precision: bool, ours_first: bool, batch: int | None
) -> None:
    """BackupAndRestore restores when training begins, before or after our callbacks are told of it."""

    def fit(*more: Any) -> tuple[Any, Any, Any]:
        model, throughput, monitor = made(), Throughput(), LossScaleMonitor()
        ours = [*([MixedPrecision(initial_scale=64.0)] if precision else []), throughput, monitor]
        theirs = [keras.callbacks.BackupAndRestore(str(tmp_path / "backup")), *more]
        try:
            callbacks = ours + theirs if ours_first else theirs + ours
            model.fit(batches(), epochs=4, verbose=0, callbacks=callbacks)
        except RuntimeError:
            assert more
        return model, throughput, monitor

    crashed, _, monitor = fit(Boom(2, batch))
    assert iterations(crashed) == 22 + (0 if batch is None else 6)
    assert monitor.summary()["applied"] == 22
    resumed, throughput, monitor = fit()
    assert iterations(resumed) == 44
    assert [record["epoch"] for record in monitor.records] == [2, 3]
    assert [record["applied"] for record in monitor.records] == [11, 22]
    assert [(epoch["epoch"], epoch["steps"]) for epoch in throughput.summary()["epochs"]] == [(2, 11), (3, 11)]
    if precision:
        scale = bridge_for(resumed).loss_scale(resumed.optimizer)
        assert scale is not None and scale.scale == 64.0 and scale.good_steps == 44


def test_a_fit_resumed_from_a_saved_model_in_mixed_precision(tmp_path: pathlib.Path) -> None:
    """Twice two epochs with a file in between are four epochs: weights, optimizer, loss scale and counts."""
    callback = MixedPrecision(initial_scale=64.0, growth_steps=15)
    straight = made()
    straight.fit(batches(), epochs=4, verbose=0, shuffle=False, callbacks=[callback])
    model = made()
    model.fit(batches(), epochs=2, verbose=0, shuffle=False, callbacks=[callback])
    model.save(tmp_path / "model.keras")
    loaded, monitor = keras.models.load_model(tmp_path / "model.keras"), LossScaleMonitor()
    loaded.fit(batches(), epochs=4, initial_epoch=2, verbose=0, shuffle=False, callbacks=[callback, monitor])
    assert iterations(loaded) == iterations(straight) == 44
    scales = [bridge_for(model).loss_scale(model.optimizer) for model in (loaded, straight)]
    # Keras 2 writes the scale into a file, and not how many good steps it has behind it.
    assert scales[0] == scales[1] if KERAS3 else scales[0].scale == scales[1].scale
    for ours, theirs in zip(loaded.get_weights(), straight.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert callback.session.endings["retrofit"].outcome.status is Status.APPLIED
    assert [record["applied"] for record in monitor.records] == [11, 22], STACK
