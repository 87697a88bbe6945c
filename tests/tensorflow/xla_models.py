"""Layers that XLA cannot compile, and models around them, for every Keras."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from tests.stack import keras, tf


class _SameShape(keras.layers.Layer):
    """A layer whose output has its input's shape."""

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


class Python(_SameShape):
    """Calls Python code that TensorFlow runs eagerly."""

    def call(self, inputs: Any) -> Any:
        tf.py_function(lambda value: value, [inputs], tf.float32)
        return inputs


class Numpy(_SameShape):
    """Calls NumPy code."""

    def call(self, inputs: Any) -> Any:
        outputs = tf.numpy_function(lambda value: value, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return inputs + tf.stop_gradient(outputs)


class Text(_SameShape):
    """Goes through strings."""

    def call(self, inputs: Any) -> Any:
        return tf.strings.to_number(tf.strings.as_string(inputs))


class Loop(_SameShape):
    """Goes through strings inside a loop, whose body is a function of its own."""

    def call(self, inputs: Any) -> Any:
        def body(count: Any, value: Any) -> Any:
            return count + 1, tf.strings.to_number(tf.strings.as_string(value))

        return tf.while_loop(lambda count, _: count < 2, body, [0, inputs])[1]


class Table(_SameShape):
    """Looks values up in a hash table, which is a resource and no variable."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        keys = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1], tf.int64), tf.constant([1.0, 2.0]))
        self.table = tf.lookup.StaticHashTable(keys, 0.0)

    def call(self, inputs: Any) -> Any:
        return inputs + self.table.lookup(tf.cast(inputs, tf.int64))


class Ragged(_SameShape):
    """Makes a ragged tensor and a dense one of it."""

    def call(self, inputs: Any) -> Any:
        ragged = tf.RaggedTensor.from_tensor(inputs, padding=0.0)
        return inputs + tf.stop_gradient(tf.reduce_sum(ragged.to_tensor()))


class Sparse(_SameShape):
    """Multiplies with a sparse matrix."""

    def call(self, inputs: Any) -> Any:
        matrix = tf.sparse.from_dense(tf.eye(2))
        return tf.sparse.sparse_dense_matmul(inputs, matrix)


# What each is refused for.
REFUSED: dict[Callable[..., Any], str] = {
    Python: "EagerPyFunc",
    Numpy: "PyFunc",
    Text: "AsString",
    Loop: "AsString",
    Table: "LookupTableFindV2",
    Ragged: "RaggedTensorToTensor",
    Sparse: "SparseTensorDenseMatMul",
}


class Subclassed(keras.Model):
    """A model that calls a layer, with or without a train step of its own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.odd = layer
        self.out = keras.layers.Dense(1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.out(self.odd(inputs))


class OwnStep(Subclassed):
    """A train step written by hand that goes through strings itself."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        x = tf.strings.to_number(tf.strings.as_string(x))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def sequential(layer: Any) -> Any:
    """A Sequential model with dropout and batch normalisation behind a layer."""
    parts = [layer, keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()]
    return keras.Sequential([keras.Input((2,)), *parts, keras.layers.Dense(1)])


def functional(layer: Any) -> Any:
    """A functional model with a nested one that holds the layer."""
    inputs = keras.Input((2,))
    inner_inputs = keras.Input((2,))
    inner = keras.Model(inner_inputs, layer(inner_inputs), name="inner")
    return keras.Model(inputs, keras.layers.Dense(1)(inner(inputs)))


KINDS: dict[str, Callable[[Any], Any]] = {"sequential": sequential, "functional": functional, "subclassed": Subclassed}


def compiled(model: Any, **arguments: Any) -> Any:
    """The model, compiled."""
    model.compile(keras.optimizers.Adam(0.01), "mse", **{"jit_compile": False, **arguments})
    return model


def plain(name: str = "plain") -> Any:
    """A model that XLA compiles."""
    return sequential(keras.layers.Activation("relu", name=name))


def rows(number: int = 16) -> tuple[Any, Any]:
    """Inputs and targets."""
    generator = np.random.default_rng(1)
    return generator.normal(size=(number, 2)).astype("float32"), generator.normal(size=(number, 1)).astype("float32")


def dataset(number: int = 16, batch: int = 4) -> Any:
    """The same as batches."""
    return tf.data.Dataset.from_tensor_slices(rows(number)).batch(batch)
