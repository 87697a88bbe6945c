"""Small Keras 2 models of every kind, the same weights whenever they are built, and what is counted in their graphs."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import numpy as np

from tests.stack import STACK, keras, tf
from tfvolta.bridge.base import GraphSummary, LossScaleSettings
from tfvolta.bridge.keras2 import Keras2Bridge, make_bridge

L = keras.layers
CLASSES = 4
COMPUTING = ("MatMul", "BatchMatMulV2", "Conv2D", "Einsum", "DepthwiseConv2dNative")

_random = np.random.RandomState(0)
IMAGES = _random.rand(64, 8, 8, 3).astype("float32")
TOKENS = _random.randint(0, 50, (64, 12))
LABELS = _random.randint(0, CLASSES, 64)


def bridge() -> Keras2Bridge:
    """A bridge for this process's stack."""
    return make_bridge(STACK)


def mixed(model: Any, **arguments: Any) -> Any:
    """Retrofit and loss scaling, as the callback does both."""
    own = bridge()
    result = own.retrofit(model, "mixed_float16", **arguments)
    own.install_loss_scale(model, LossScaleSettings())
    return result


def functional() -> Any:
    """Convolution, separable convolution, batch normalisation, a residual sum, dense layers."""
    inputs = keras.Input((8, 8, 3))
    x = L.Conv2D(8, 3, padding="same")(inputs)
    y = L.BatchNormalization()(x)
    y = L.ReLU()(y)
    x = L.Add()([x, y])
    x = L.SeparableConv2D(8, 3)(x)
    x = L.Flatten()(x)
    x = L.Dense(16, activation="relu", kernel_regularizer="l2")(x)
    return keras.Model(inputs, L.Dense(CLASSES, activation="softmax", name="head")(x))


def sequential() -> Any:
    """Layers in a row, ended by a softmax of its own."""
    return keras.Sequential(
        [L.Conv2D(8, 3, input_shape=(8, 8, 3)), L.BatchNormalization(), L.Flatten(), L.Dense(CLASSES), L.Softmax()]
    )


def nested() -> Any:
    """A model inside a model, which also makes the outer one's output."""
    body = keras.Sequential([L.Conv2D(8, 3, input_shape=(8, 8, 3)), L.BatchNormalization(), L.Flatten()], name="body")
    inner = keras.Input((288,))
    head = keras.Model(inner, L.Dense(CLASSES, activation="softmax", name="last")(L.Dense(8)(inner)), name="head")
    inputs = keras.Input((8, 8, 3))
    return keras.Model(inputs, head(body(inputs)))


class Subclassed(keras.Model):  # type: ignore[misc,name-defined]
    """Layers in attributes and in a list; the softmax is applied in the model's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = L.Conv2D(8, 3)
        self.norm = L.BatchNormalization()
        self.flat = L.Flatten()
        self.hidden = [L.Dense(16, activation="relu"), L.Dense(16, activation="relu")]
        self.logits = L.Dense(CLASSES)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Class probabilities."""
        x = self.flat(self.norm(self.conv(inputs), training=training))
        for layer in self.hidden:
            x = layer(x)
        return tf.nn.softmax(self.logits(x))


def subclassed() -> Any:
    """A subclassed model that was called once."""
    model = Subclassed()
    model(IMAGES[:1])
    return model


def multi_output() -> Any:
    """Two heads, of which one shares a layer with the body."""
    inputs = keras.Input((8, 8, 3))
    x = L.Flatten()(L.Conv2D(8, 3)(inputs))
    a = L.Dense(CLASSES, activation="softmax", name="a")(x)
    b = L.Reshape((CLASSES,), name="b")(L.Dense(CLASSES, activation="softmax", name="b_dense")(x))
    return keras.Model(inputs, [a, b])


def zoo() -> Any:
    """Embedding, attention, layer normalisation, recurrent layers and wrappers."""
    inputs = keras.Input((12,), dtype="int32")
    x = L.Embedding(50, 16)(inputs)
    x = L.MultiHeadAttention(2, 8)(x, x)
    x = L.LayerNormalization()(x)
    x = L.Bidirectional(L.LSTM(8, return_sequences=True))(x)
    x = L.GRU(8, return_sequences=True)(x)
    x = L.RNN(L.SimpleRNNCell(6), return_sequences=True)(x)
    x = L.TimeDistributed(L.Dense(6))(x)
    x = L.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, L.Dense(CLASSES, activation="softmax", name="head")(x))


IMAGE_MODELS: dict[str, Callable[[], Any]] = {
    "functional": functional,
    "sequential": sequential,
    "nested": nested,
    "subclassed": subclassed,
    "multi_output": multi_output,
}


def data(model: Any) -> tuple[Any, Any]:
    """Inputs and labels of a model."""
    x = TOKENS if any(type(layer).__name__ == "Embedding" for layer in model.layers) else IMAGES
    return x, [LABELS, LABELS] if len(getattr(model, "output_names", None) or []) == 2 else LABELS


def compiled(build: Callable[[], Any], optimizer: Any = None, **arguments: Any) -> Any:
    """A seeded, compiled model."""
    keras.utils.set_random_seed(1)
    model = build()
    model.compile(optimizer or keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", **arguments)
    return model


def train(model: Any, epochs: int = 2, callbacks: Any = (), **arguments: Any) -> list[float]:
    """Losses by epoch; the same order of data each time."""
    x, y = data(model)
    settings = {"batch_size": 16, "verbose": 0, "shuffle": False, **arguments}
    history = model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **settings)
    return [float(loss) for loss in history.history["loss"]]


@contextlib.contextmanager
def built_under(policy: str) -> Iterator[None]:
    """Layers constructed inside get the policy."""
    keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy("float32")


def computing(summary: GraphSummary, dtype: str) -> int:
    """Matrix products and convolutions in a dtype, forward ones."""
    return sum(summary.count(operation, dtype) for operation in COMPUTING)


class Arrange(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Runs a function with the model in one hook."""

    def __init__(self, action: Callable[[Any], Any], hook: str = "set_model") -> None:
        super().__init__()
        self._action, self._hook = action, hook

    def set_model(self, model: Any) -> None:
        """Keras's first hook."""
        super().set_model(model)
        if self._hook == "set_model":
            self._action(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """The hook before the first step."""
        if self._hook == "on_train_begin":
            self._action(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The second epoch's start, when everything was traced."""
        if self._hook == "on_epoch_begin" and epoch == 1:
            self._action(self.model)


class Mixing(L.Layer):  # type: ignore[misc,name-defined]
    """Multiplies its input by a float32 constant, which float16 inputs make an error."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.inner = L.Dense(6)

    def call(self, inputs: Any) -> Any:
        """A product of two tensors that have to be of one dtype."""
        return self.inner(inputs) * tf.constant([0.5], dtype=tf.float32)


def mixing_model() -> Any:
    """A model with one mixing layer between others."""
    inputs = keras.Input((8, 8, 3))
    x = L.Flatten()(L.Conv2D(4, 3)(inputs))
    x = Mixing(name="mixing")(x)
    return keras.Model(inputs, L.Dense(CLASSES, activation="softmax", name="head")(L.Dense(8, name="last")(x)))


class Containers(L.Layer):  # type: ignore[misc,name-defined]
    """Variables in a list, a dict, a tuple, an attribute and a module that is no layer."""

    def build(self, shape: Any) -> None:
        """Six scalars."""
        make = lambda name: self.add_weight(name, (), initializer="ones")  # noqa: E731
        self.listed = [make("a"), make("b")]
        self.named = {"c": make("c")}
        self.fixed = (make("d"), "text")
        self.single = make("e")
        self.module = tf.Module()
        self.module.scale = tf.Variable(1.0)

    def call(self, inputs: Any) -> Any:
        """The product of all of them with the input."""
        scales = [*self.listed, self.named["c"], self.fixed[0], self.single, self.module.scale]
        for scale in scales:
            inputs = inputs * scale
        return inputs


def containers_model() -> Any:
    """A model around it."""
    inputs = keras.Input((8, 8, 3))
    x = Containers(name="containers")(L.Flatten()(inputs))
    return keras.Model(inputs, L.Dense(CLASSES, activation="softmax", name="head")(L.Dense(8)(x)))
