"""Whether training waits for its data: slow sources of every kind, and the same model on data that are there."""

from __future__ import annotations

import pathlib
import time
import warnings
from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import fit_input, pipeline
from tfvolta.bridge.stocked_input import StockedInput
from tfvolta.callbacks import Checkpoint, InputShare
from tfvolta.errors import InputBoundWarning

FIRST, SECONDS, BATCHES = 4, 0.04, 16
X, Y = np.ones((4, 16), "float32"), np.ones((4, 1), "float32")


def slow_row(number: Any) -> Any:
    time.sleep(SECONDS / 4)
    return np.ones((16,), "float32")


def mapped(batches: int = BATCHES) -> Any:
    """Batches of four rows that a Python function makes, one row after another."""
    rows = tf.data.Dataset.range(4 * batches).map(
        lambda number: tf.ensure_shape(tf.numpy_function(slow_row, [number], tf.float32), [16])
    )
    return rows.batch(4).map(lambda row: (row, row[:, :1]))


def generated(batches: int = BATCHES) -> Iterator[Any]:
    for _ in range(batches):
        time.sleep(SECONDS)
        yield X, Y


class Slow(keras.utils.PyDataset if KERAS3 else keras.utils.Sequence):  # type: ignore[misc,name-defined]
    """A sequence whose batches take their time."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        time.sleep(SECONDS)
        return X, Y


class Computing(keras.Sequential):  # type: ignore[misc,name-defined]
    """A model whose step takes a known time, as on a device that computes it."""

    def train_step(self, *arguments: Any) -> Any:
        def compute(value: Any) -> Any:
            time.sleep(SECONDS)
            return value

        x, y = arguments[-1]
        waited = tf.numpy_function(compute, [tf.reshape(x, [-1])[0]], tf.float32)
        with tf.control_dependencies([waited]):
            return super().train_step((tf.identity(x), y))


def model(kind: Any = keras.Sequential, **arguments: Any) -> Any:
    made = kind([keras.Input((16,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **{"jit_compile": False, **arguments})
    return made


def measured(data: Any, trained: Any = None, **arguments: Any) -> dict[str, Any]:
    share = InputShare()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (trained or model()).fit(data, verbose=0, callbacks=[share], **arguments)
    summary = share.summary()
    warned = [str(each.message) for each in caught if each.category is InputBoundWarning]
    assert len(warned) == (summary["bound"] == "input")
    assert all(summary["diagnosis"] in text for text in warned)
    return summary


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lambda: mapped().prefetch(2), "num_parallel_calls"),
        (mapped, "num_parallel_calls"),
        (generated, "a Python generator"),
        (Slow, "workers=4"),
    ],
    ids=("prefetched map", "map", "generator", "sequence"),
)
def test_a_slow_source_is_what_training_waits_for(make: Any, first: str) -> None:
    found = measured(make())
    assert found["bound"] == "input" and found["share"] > 0.5, found
    assert found["data_seconds"] == pytest.approx(SECONDS, rel=0.6) and found["held_step_seconds"] < SECONDS / 2
    assert first in found["first_remedy"]


def test_the_same_model_on_data_in_memory_is_compute_bound() -> None:
    cached = mapped(6).cache().repeat(4)
    list(cached.take(6))
    for data, arguments in ((cached, {"epochs": 2}), (X.repeat(30, 0), {"y": Y.repeat(30, 0), "batch_size": 4})):
        assert measured(data, **arguments)["bound"] == "compute"


def test_data_that_come_while_a_step_computes_are_no_wait() -> None:
    """They cost nothing where TensorFlow fetches them ahead, and are made and used in turn where it must not."""
    data = mapped(BATCHES)
    assert pipeline.describe(data).prefetched
    assert measured(data, model(Computing))["share"] < 0.35
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    data = data.with_options(options)
    assert not pipeline.describe(data).prefetched
    in_turn = measured(data, model(Computing))
    assert in_turn["share"] == pytest.approx(0.5, abs=0.2) and in_turn["bound"] == "input", in_turn
    assert "dataset.prefetch(" in in_turn["first_remedy"]


@pytest.mark.parametrize("kind", ("steps_per_execution", "jit", "replicas", "epochs", "endless"))
def test_whatever_the_step_is(kind: str) -> None:
    data, arguments, trained = mapped(), {}, None
    if kind == "steps_per_execution":
        trained = model(steps_per_execution=3)
    elif kind == "jit":
        trained = model(jit_compile=True)
    elif kind == "replicas":
        data = mapped(40)
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            trained = model()
    elif kind == "epochs":
        data, arguments = mapped(5), {"epochs": 4, "validation_data": (X, Y)}
    else:
        data, arguments = mapped().repeat(), {"epochs": 2, "steps_per_epoch": 9}
    found = measured(data, trained, **arguments)
    assert found["bound"] == "input" and found["share"] > 0.4, found
    assert found["held_steps"] >= 2


def test_slow_validation_is_not_counted() -> None:
    rows = X.repeat(30, 0), Y.repeat(30, 0)
    found = measured(tf.data.Dataset.from_tensor_slices(rows).batch(4).cache(), epochs=2, validation_data=mapped(8))
    assert found["bound"] == "compute" and found["step_seconds"] < SECONDS


def test_training_sees_the_same_batches_in_the_same_order() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 16)).astype("float32"), rng.normal(size=(90, 1)).astype("float32")
    losses = []
    for callbacks in ([], [InputShare()]):
        keras.utils.set_random_seed(3)
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(90).batch(4)
        trained = keras.Sequential([keras.Input((16,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
        trained.compile("sgd", "mse", jit_compile=False)
        losses.append(trained.fit(data, epochs=3, verbose=0, callbacks=callbacks).history["loss"])
    assert losses[0] == losses[1]


def test_stocks_keep_the_order_across_the_end_of_the_data() -> None:
    data = tf.data.Dataset.range(10).map(lambda number: {"a": number})
    stocked = StockedInput(data)
    assert stocked.dataset.element_spec == data.element_spec and int(stocked.dataset.cardinality()) == 10
    seen = []
    for epoch in range(3):
        for position, element in enumerate(stocked.dataset):
            seen.append(int(element["a"]))
            if (epoch, position) == (0, FIRST):
                stocked.hold(3)
            if (epoch, position) == (0, FIRST + 1):
                assert stocked.fetched().batches == FIRST + 1 + 3  # all of the stock came before its first was given
                assert stocked.fetched().full_at >= stocked.fetched().first_at > 0
            if (epoch, position) == (1, 8):
                stocked.hold(6)  # the data end inside
    assert seen == list(range(10)) * 3 and stocked.fetched().batches == 30


class Looks(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    def on_train_begin(self, logs: Any = None) -> None:
        self.found = fit_input.of_fit(self.model)


def test_the_data_of_a_fit_are_found_whatever_goes_around_them() -> None:
    looks, data = Looks(), tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
    on_device = data.apply(tf.data.experimental.prefetch_to_device("/CPU:0", 2))
    for given, ahead in ((data, False), (on_device, True)):
        model().fit(given, verbose=0, callbacks=[looks])
        found, reason = looks.found
        assert not reason and found.dataset is data and found.ahead == ahead
    assert pipeline.describe(on_device).on_device and pipeline.describe(on_device).prefetched
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        trained = model()
    trained.fit(data, verbose=0, callbacks=[looks])
    assert looks.found[0].dataset is data and looks.found[0].ahead


@pytest.mark.parametrize(("seed", "measured"), [(3, True), (None, False)])
def test_data_whose_place_a_checkpoint_holds_are_left_alone(seed: Any, measured: bool, tmp_path: pathlib.Path) -> None:
    tf.random.set_seed(None)
    data = tf.data.Dataset.from_tensor_slices((X.repeat(10, 0), Y.repeat(10, 0))).shuffle(40, seed=seed).batch(4)
    share = InputShare()
    model().fit(data, verbose=0, callbacks=[Checkpoint(str(tmp_path), every_steps=3), share])
    assert (share.figures is not None) == measured
    assert measured or "checkpoints hold the place" in share.summary()["diagnosis"]


def test_what_cannot_be_measured_says_why() -> None:
    assert fit_input.of_fit(model()) == (None, "no fit is running that keeps its data where Keras does")
    share = InputShare()
    assert share.summary()["diagnosis"] == "Not measured: no fit has ended."
    model().fit(X, Y, batch_size=4, verbose=0, callbacks=[share])
    assert share.summary()["share"] is None and "too short" in share.summary()["diagnosis"]
