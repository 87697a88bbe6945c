"""Private names of Keras and TensorFlow by which the data of a fit are found and read; a change of them fails here."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import datasets, fit_input, input_part, pipeline, running_fit, sequence_data

X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
ROWS = tf.data.Dataset.from_tensor_slices((X, Y))


class Looks(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    def on_train_begin(self, logs: Any = None) -> None:
        self.variables = dict(running_fit.local_variables(self.model))
        self.given = fit_input.given(self.model)
        self.state = input_part.InputPart().input_state(self.model)


def looked_at(data: Any, strategy: Any = None, **arguments: Any) -> Looks:
    looks = Looks()
    with (strategy or tf.distribute.get_strategy()).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    model.fit(data, verbose=0, callbacks=[looks], **arguments)
    return looks


def test_fit_iterates_the_data_set_that_its_holder_keeps() -> None:
    data = ROWS.batch(4)
    looks = looked_at(data)
    if KERAS3:
        holder = looks.variables["epoch_iterator"]
        assert holder._distributed_dataset is data and holder.data_adapter._dataset is data
        assert "self._distributed_dataset" in inspect.getsource(type(holder)._get_iterator)
        assert "iter(self._get_iterator())" in inspect.getsource(type(holder)._enumerate_iterator)
    else:
        holder = looks.variables["data_handler"]
        assert holder._dataset is data and holder._adapter._dataset is data
        assert "iter(self._dataset)" in inspect.getsource(type(holder).enumerate_epochs)
    assert looks.given == (data, "other") and looks.state.kind == "dataset"


def test_a_strategy_keeps_the_data_set_that_it_distributes() -> None:
    data = ROWS.batch(4)
    looks = looked_at(data, tf.distribute.MirroredStrategy(["CPU:0"]))
    held = (
        looks.variables["epoch_iterator"]._distributed_dataset if KERAS3 else looks.variables["data_handler"]._dataset
    )
    assert not isinstance(held, tf.data.Dataset) and held._original_dataset is data


def test_adapters_are_told_apart_by_their_class() -> None:
    def batches() -> Any:
        yield X, Y

    assert looked_at(batches()).given[1] == "generator"
    arrays = looked_at(X, y=Y, batch_size=4)
    assert arrays.state.kind == "arrays"

    class Two(keras.utils.PyDataset if KERAS3 else keras.utils.Sequence):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return X, Y

    assert looked_at(Two()).given[1] == "sequence"


def test_transformations_are_told_apart_by_their_class() -> None:
    def called(row: Any, label: Any) -> Any:
        return tf.numpy_function(lambda value: value, [row], tf.float32), label

    def names(dataset: Any) -> list[str]:
        return [type(each).__name__ for each in datasets.chain(dataset)]

    serial, parallel = ROWS.map(called), ROWS.map(lambda row, label: (row, label), num_parallel_calls=2)
    assert names(serial)[0] == "_MapDataset" and names(parallel)[0] == "_ParallelMapDataset"
    assert pipeline.describe(serial).python_maps == pipeline.describe(serial).serial_maps == 1
    assert pipeline.describe(parallel).parallel_maps == 1 and not pipeline.describe(parallel).random
    assert pipeline.describe(ROWS.shuffle(2)).random and not pipeline.describe(ROWS.shuffle(2)).draws
    generated = tf.data.Dataset.from_generator(lambda: iter([X]), output_signature=tf.TensorSpec((8, 4)))
    assert names(generated)[0] == "_FlatMapDataset" and pipeline.describe(generated).generator


def test_figures_of_transformations_are_where_they_were(tmp_path: Any) -> None:
    copied = ROWS.cache().apply(tf.data.experimental.prefetch_to_device("/CPU:0", 3))
    assert (pipeline.prefetch_buffer(copied), pipeline.device(copied), pipeline.cache_place(copied)) == (
        3,
        "/CPU:0",
        "memory",
    )
    host, finish = pipeline.copy_to_device(copied) or (None, None)
    assert type(host).__name__ == "CacheDataset" and finish is not None
    assert pipeline.prefetch_buffer(finish(ROWS)) == 3 and pipeline.device(finish(ROWS)) == "/CPU:0"
    assert pipeline.cache_place(ROWS.cache(str(tmp_path / "kept"))) == str(tmp_path / "kept")


def test_batches_are_told_from_rows() -> None:
    ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))
    for dataset, expected in (
        (ROWS, False),
        (ROWS.batch(2), True),
        (ROWS.batch(2).filter(lambda row, label: True).prefetch(1), True),
        (ROWS.batch(2).unbatch(), False),
        (ragged, False),
        (ragged.batch(2), True),
        (ROWS.padded_batch(2), True),
        (ROWS.flat_map(lambda row, label: tf.data.Dataset.from_tensors(row)), None),
    ):
        assert sequence_data.is_batched(dataset) is expected
    assert sequence_data.batch_rows(ROWS.padded_batch(3).prefetch(1)) == 3


def test_a_functional_graph_tells_which_call_takes_which_tensor() -> None:
    inputs = keras.Input((4,))
    layer = keras.layers.Dense(1)
    model = keras.Model(inputs, layer(inputs))
    nodes = [node for nodes in model._nodes_by_depth.values() for node in nodes]
    (call,) = [node for node in nodes if not node.is_input]
    if KERAS3:
        assert call.operation is layer and call.input_tensors[0] is model.inputs[0] is call.arguments.args[0]
        assert layer.autocast and layer._convert_input_args and not model._convert_input_args
        assert keras.Sequential([keras.Input((4,)), layer])._functional._nodes_by_depth
        assert "self.autocast, self.input_dtype" in inspect.getsource(type(layer).__call__)
    else:
        assert call.layer is layer and call.keras_inputs[0] is model.inputs[0] is call.call_args[0]
        assert layer._autocast and not model._autocast and call.call_kwargs == {}
        assert "self._maybe_cast_inputs(inputs, input_list)" in inspect.getsource(keras.layers.Layer.__call__)
