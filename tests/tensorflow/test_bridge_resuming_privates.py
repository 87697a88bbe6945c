"""Private names of Keras and TensorFlow by which a fit goes on from a checkpoint; a change of them fails here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.checkpoint_models import DATA, compiled, fit
from tfvolta.bridge import bridge_for, data_order, datasets, running_fit


class Looks(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Keeps what the running fit holds in its variables."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.begin = dict(running_fit.local_variables(self.model))
        self.stream = bridge_for(self.model).fit_stream(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.variables = dict(running_fit.local_variables(self.model))
        self.callbacks = running_fit.callbacks(self.model)


@pytest.fixture(scope="module")
def seen() -> Looks:
    looks = Looks()
    fit(compiled(), DATA["arrays"](), looks, epochs=1)
    return looks


def test_fit_keeps_its_callbacks_and_first_epoch_in_variables(seen: Looks) -> None:
    assert seen in seen.callbacks
    assert seen.begin["initial_epoch"] == 0
    assert (seen.stream.kind, seen.stream.epoch_batches) == ("arrays", 8)


@pytest.mark.skipif(KERAS3, reason="Keras 2")
def test_keras2_fit_asks_the_training_state_and_counts_in_the_handler(seen: Looks) -> None:
    handler = seen.variables["data_handler"]
    for name in ("_initial_epoch", "_initial_step", "_inferred_steps", "_dataset", "_adapter"):
        assert hasattr(handler, name), name
    assert callable(handler._adapter.should_recreate_iterator) and callable(handler._adapter.on_epoch_end)
    assert seen.variables["iterator"] is not None
    model = compiled()
    assert model._training_state is None and model._train_counter is not None
    source = inspect.getsource(type(model)._maybe_load_initial_counters_from_ckpt)
    assert "self._training_state.maybe_load_initial_counters_from_ckpt(" in source
    assert "self._initial_step = 0" in inspect.getsource(type(handler).steps)  # for the first epoch only


@pytest.mark.skipif(KERAS3, reason="Keras 2")
def test_keras2_hides_the_state_of_random_layers() -> None:
    random = keras.layers.Dropout(0.5)._random_generator
    assert random._rng_type in (random.RNG_LEGACY_STATEFUL, random.RNG_STATEFUL)
    assert random.RNG_LEGACY_STATEFUL == "legacy_stateful"


@pytest.mark.skipif(KERAS3, reason="Keras 2")
def test_keras2_sequences_are_shuffled_by_python() -> None:
    looks = Looks()
    fit(compiled(), DATA["sequence"](), looks, epochs=1)
    adapter = looks.variables["data_handler"]._adapter
    assert adapter._keras_sequence is not None and adapter._shuffle_sequence is True and adapter.get_size() == 8


@pytest.mark.skipif(not KERAS3, reason="Keras 3")
def test_keras3_fit_begins_where_the_model_says_and_enumerates_in_one_place(seen: Looks) -> None:
    epochs = seen.variables["epoch_iterator"]
    for name in ("steps_per_epoch", "steps_per_execution", "_num_batches", "_steps_seen", "_current_iterator"):
        assert hasattr(epochs, name), name
    assert epochs.data_adapter._shuffle is True
    assert "self._enumerate_iterator()" in inspect.getsource(type(epochs).__iter__)
    model = compiled()
    assert model._initial_epoch is None
    assert "self._initial_epoch or initial_epoch" in inspect.getsource(type(model).fit.__wrapped__)


@pytest.mark.skipif(not KERAS3, reason="Keras 3")
def test_keras3_sequences_are_shuffled_by_python() -> None:
    looks = Looks()
    fit(compiled(), DATA["sequence"](), looks, epochs=1)
    adapter = looks.variables["epoch_iterator"].data_adapter
    assert adapter.py_dataset is not None and adapter.shuffle is True and adapter.num_batches == 8


def test_data_sets_show_what_they_are_made_from_and_their_seeds() -> None:
    rows = tf.data.Dataset.range(8)
    names = [type(each).__name__ for each in datasets.chain(tf.data.Dataset.zip((rows.shuffle(8), rows)).batch(2))]
    assert {"_ShuffleDataset", "_ZipDataset"} <= set(names)
    assert data_order.of_dataset(rows.batch(2)) == data_order.FIXED
    assert data_order.of_dataset(rows.shuffle(8, seed=1).batch(2)) == data_order.SEEDED
    assert data_order.of_dataset(rows.flat_map(lambda row: rows.shuffle(8, seed=2))) == data_order.SEEDED
    generated = tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64))
    assert data_order.of_dataset(generated) == data_order.UNKNOWN
    assert type(iter(rows)).__name__ == "OwnedIterator"


def test_without_a_seed_an_order_is_known_to_be_another_each_time() -> None:
    tf.random.set_seed(None)
    try:
        rows = tf.data.Dataset.range(8)
        assert data_order.of_dataset(rows.shuffle(8).batch(2)) == data_order.UNSEEDED
        assert data_order.of_dataset(rows.flat_map(lambda row: rows.shuffle(8))) == data_order.UNSEEDED
        noisy = rows.map(lambda row: tf.cast(row, tf.float32) + tf.random.uniform(()))
        assert data_order.of_dataset(noisy) == data_order.UNSEEDED
        assert data_order.of_arrays(True) == data_order.UNSEEDED
    finally:
        keras.utils.set_random_seed(0)
    assert data_order.of_arrays(True) == data_order.SEEDED
    assert data_order.of_arrays(False) == data_order.FIXED
