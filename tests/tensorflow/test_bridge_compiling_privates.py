"""TensorFlow's and Keras's insides through which compilations are counted and limited; a change must fail here."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import running_fit, xla_trial
from tfvolta.bridge.batch_shapes import labelled


def test_fit_takes_its_iterators_from_where_shapes_are_noted() -> None:
    seen: list[Any] = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            variables = running_fit.local_variables(self.model)
            assert variables is not None
            holder = variables["epoch_iterator" if KERAS3 else "data_handler"]
            name = "_distributed_dataset" if KERAS3 else "_dataset"
            assert isinstance(getattr(holder, name), tf.data.Dataset)
            setattr(holder, name, getattr(holder, name).map(lambda x, y: (x, self.note(y))))

        def note(self, y: Any) -> Any:
            return tf.numpy_function(lambda value: (seen.append(len(value)), value)[1], [y], tf.float32)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    data = tf.data.Dataset.from_tensor_slices((np.ones((5, 2), "f"), np.ones((5, 1), "f"))).batch(3)
    model.fit(data, verbose=0, callbacks=[Look()])
    assert sorted(seen)[-2:] == [2, 3] or sorted(seen)[-2:] == [3, 3]


def test_a_traced_step_can_be_handed_over_by_its_definitions() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    model.make_train_function()
    data = tf.data.Dataset.from_tensors((np.ones((4, 2), "f"), np.ones((4, 1), "f")))
    ((name, definitions, function),) = xla_trial.marked_definitions(model, iter(data))
    assert definitions[name].signature.name == name and definitions[name].attr["_XlaMustCompile"].b
    assert len(function.graph.inputs) == len(definitions[name].signature.input_arg)
    handles = [tensor for tensor in function.captured if tensor.dtype == tf.resource]
    shapes = [tensor._handle_data.shape_and_type[0].shape for tensor in handles]
    assert tf.TensorShape([2, 1]) in [tf.TensorShape(shape) for shape in shapes]


def test_names_of_the_parts_of_a_batch() -> None:
    spec = ({"b": 1, "a": (2, 3)}, 4, None)
    assert list(labelled(spec)) == [("x.a[0]", 2), ("x.a[1]", 3), ("x.b", 1), ("y", 4)]
