"""Batches that memory is too small for, trained in parts: the update is that of the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import keras, tf
from tests.tensorflow.memory_models import Greedy, differing
from tfvolta.callbacks import OutOfMemory

ROWS = 12


def make(most_rows: int, optimizer: Any = None, **arguments: Any) -> Any:
    """A model in which a batch of more rows than that runs out of memory."""
    keras.utils.set_random_seed(2)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(Greedy(most_rows)(hidden)))
    compiled = {"loss": "mse", "jit_compile": False, "metrics": ["mae"], **arguments}
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.5), **compiled)
    return model


def data(rows: int = 36, batch: int = ROWS) -> Any:
    x = np.random.default_rng(4).normal(size=(rows, 3)).astype("float32")
    weights = np.linspace(0.5, 2.0, rows).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1] * 2.0, weights)).batch(batch)


def split(model: Any, given: Any, **arguments: Any) -> OutOfMemory:
    callback = OutOfMemory("split")
    model.fit(given, verbose=0, callbacks=[callback], **arguments)
    return callback


def done(callback: OutOfMemory) -> tuple[int, int]:
    observed = callback.session.endings["on_oom"].outcome.observed
    return observed["split_batches"], observed["parts"]


@pytest.mark.parametrize("most_rows, parts", [(6, 2), (3, 4)])
def test_the_update_is_that_of_the_whole_batch(most_rows: int, parts: int) -> None:
    model, plain = make(most_rows), make(100)
    callback = split(model, data())
    history = plain.fit(data(), verbose=0).history
    assert differing(model, plain) == []
    assert done(callback) == (3, parts)
    assert model.history.history["loss"][0] == pytest.approx(history["loss"][0], rel=1e-5)
    assert int(model.optimizer.iterations) == 3


def test_adam_and_a_smaller_batch_that_fits() -> None:
    """32 rows in batches of 12: the last has 8 and is trained whole."""
    model, plain = make(8, keras.optimizers.Adam(0.05)), make(100, keras.optimizers.Adam(0.05))
    callback = split(model, data(32), epochs=2)
    plain.fit(data(32), verbose=0, epochs=2)
    assert differing(model, plain) == []
    assert done(callback) == (4, 2) and int(model.optimizer.iterations) == 6


def test_the_model_trains_whole_batches_again_afterwards() -> None:
    model, plain = make(6), make(100)
    split(model, data())
    plain.fit(data(), verbose=0)
    for each in (model, plain):
        each.fit(data(12, 6), verbose=0)
    assert differing(model, plain) == []


def test_not_even_one_row_fits() -> None:
    model, plain = make(0), make(100)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="epoch 0, batch 0"):
        split(model, data())
    assert int(model.optimizer.iterations) == 0
    assert all(np.array_equal(*pair) for pair in zip(model.get_weights(), plain.get_weights()))


def test_a_loss_that_is_no_mean_is_not_split() -> None:
    with pytest.raises(tf.errors.ResourceExhaustedError, match="no mean over the rows"):
        split(make(6, loss=keras.losses.MeanSquaredError(reduction="sum")), data())


def test_a_masked_model_is_not_split() -> None:
    inputs = keras.Input((4,), dtype="int32")
    embedded = keras.layers.Embedding(5, 3, mask_zero=True)(inputs)
    outputs = keras.layers.Dense(1)(Greedy(2)(keras.layers.GlobalAveragePooling1D()(embedded)))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((8, 4), "int32")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="makes a mask"):
        split(model, tf.data.Dataset.from_tensor_slices((x, x[:, :1] * 1.0)).batch(4))


def test_a_fit_that_never_runs_out_is_that_of_plain_keras() -> None:
    model, plain = make(100), make(100)
    callback = split(model, data(30), epochs=2)
    plain.fit(data(30), verbose=0, epochs=2)
    assert differing(model, plain) == [] and done(callback) == (0, 0)
