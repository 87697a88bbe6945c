"""Models, optimizers and helpers of the tests of how gradients are reduced."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta import load_config
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.errors import BridgeError

BRIDGE = bridge_for_stack(STACK)
EVERY, BATCH, WINDOWS = 3, 8, 4
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(EVERY * BATCH * WINDOWS, 4).astype("float32")
Y = (X @ RANDOM.randn(4, 1)).astype("float32")
TOKENS = RANDOM.randint(0, 20, (len(X), 3)).astype("int32")
ALONE = tf.distribute.get_strategy()
optimizers = keras.optimizers
layers = keras.layers


class Reduces(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """What the settings do when fit begins: corrects the model and gives its gradients a path."""

    def __init__(self, **settings: Any):
        super().__init__()
        self.settings = settings

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        BRIDGE.mend(model)
        BRIDGE.count_steps(model)
        BRIDGE.set_reduction(model, **self.settings)


def dense() -> Any:
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])


def embedding(kind: Any = keras.Sequential) -> Any:
    """Sparse gradients, with rows that no batch names."""
    keras.utils.set_random_seed(7)
    return kind([keras.Input((3,), dtype="int32"), layers.Embedding(40, 4), layers.Flatten(), layers.Dense(1)])


class DenseGradients(keras.Sequential):  # type: ignore[misc,name-defined]
    """Makes sparse gradients dense: Keras 3's Adam squares each of two slices of a row instead of their sum."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class OwnStep(keras.Model):  # type: ignore[misc,name-defined]
    """A subclassed model with a train step of its own, in Keras's words."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(7)
        self.hidden = layers.Dense(8, activation="tanh")
        self.out = layers.Dense(1)
        self.build((None, 4))

    def build(self, shape: Any) -> None:
        """Makes the weights, so that a strategy finds them."""
        if not self.built:
            self.built = True
            self(tf.zeros((1, 4)))

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    def loss_of(self, data: Any) -> Any:
        """The replica's share of the mean squared error."""
        x, y = data
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return tf.reduce_mean(tf.square(self(x, training=True) - y)) / replicas

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class ScaledStep(OwnStep):
    """The same with the package's functions for loops of one's own."""

    def train_step(self, data: Any) -> Any:
        from tfvolta import precision

        with tf.GradientTape() as tape:
            loss = precision.scale_loss(self.optimizer, self.loss_of(data))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = precision.unscale_gradients(self.optimizer, gradients)
        precision.apply_gradients(self.optimizer, zip(gradients, self.trainable_variables))
        return {"loss": loss}


class Scalar(OwnStep):
    """One weight whose gradient is the batch's mean of x: what travels is known to the bit."""

    def __init__(self) -> None:
        keras.Model.__init__(self)
        self.layer = layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self.build((None, 1))

    def build(self, shape: Any) -> None:
        if not self.built:
            self.built = True
            self(tf.zeros((1, 1)))

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    def train_step(self, data: Any) -> Any:
        from tfvolta import precision

        x = data[0]
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.GradientTape() as tape:
            loss = precision.scale_loss(self.optimizer, tf.reduce_mean(self(x, training=True)) / replicas)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = precision.unscale_gradients(self.optimizer, gradients)
        precision.apply_gradients(self.optimizer, zip(gradients, self.trainable_variables))
        return {"loss": loss}


MAKERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.05),
    "momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.01),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "clipnorm": lambda: optimizers.SGD(0.05, clipnorm=0.3),
    "global_clipnorm": lambda: optimizers.SGD(0.05, global_clipnorm=0.3),
    "ema": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "schedule": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)),
}
if not KERAS3:
    MAKERS["legacy"] = lambda: optimizers.legacy.SGD(0.05, momentum=0.9, global_clipnorm=0.5)
    MAKERS["legacy_adam"] = lambda: optimizers.legacy.Adam(0.01)


def flat(model: Any) -> Any:
    return np.concatenate([np.ravel(weights) for weights in model.get_weights()])


def data(batch: int, x: Any = X, y: Any = Y) -> Any:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True)


def compiled(
    strategy: Any,
    optimizer: Callable[[], Any] = MAKERS["momentum"],
    make: Callable[[], Any] = dense,
    scale: Any = None,
    **arguments: Any,
) -> Any:
    """A model in a strategy's scope, with a loss scale where one is given."""
    with strategy.scope():
        model, made = make(), optimizer()
        if scale is not None:
            made = BRIDGE.scale_optimizer(made, LossScaleSettings(**scale))
        model.compile(made, "mse", **{"jit_compile": False, **arguments})
    return model


def fit(model: Any, batch: int, given: Any = None, epochs: int = 1, **settings: Any) -> Any:
    callbacks = [Reduces(**settings)] if settings else []
    model.fit(data(batch) if given is None else given, verbose=0, shuffle=False, callbacks=callbacks, epochs=epochs)
    return model


def difference(one: Any, other: Any) -> float:
    return float(np.abs(flat(one) - flat(other)).max())


def seen(model: Any) -> dict[str, Any]:
    """What the bridge says of a model's reduction."""
    state, counts = BRIDGE.reduction(model), BRIDGE.step_counts(model)
    graphs = BRIDGE.reduction_graphs(model)
    return {
        "batches": state.batches,
        "updates": state.updates,
        "pending": state.pending,
        "gradient_bytes": state.gradient_bytes,
        "wire_bytes": state.wire_bytes,
        "applied": counts.applied,
        "skipped": counts.skipped,
        "graphs": {
            mode: [dict(graph.operations), graph.bytes, sum(graph.others.values())] for mode, graph in graphs.items()
        },
        "traces": BRIDGE.trace_count(model),
    }


def refused(action: Callable[[], Any]) -> str:
    """The message with which something is refused, or ``accepted``."""
    try:
        action()
    except BridgeError as error:
        return str(error)
    except Exception as error:  # TensorFlow repeats an error of a trace in its own
        return str(error)
    return "accepted"


def asked(replicas: int, **communication: Any) -> Any:
    """A config for so many logical CPUs."""
    devices = [f"CPU:{number}" for number in range(replicas)]
    several = {"kind": "mirrored", "devices": devices, "logical_cpus": replicas}
    strategy = several if replicas > 1 else {"kind": "default"}
    run = {"strict": False, "directory": sys.argv[-1] if os.path.isdir(sys.argv[-1]) else "runs"}
    return load_config(strategy=strategy, communication=communication, run=run)
