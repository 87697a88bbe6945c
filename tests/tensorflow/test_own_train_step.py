"""A train step of the model's own under mixed precision: scaled it is APPLIED, unscaled it is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, keras, tf
from tfvolta.errors import NoEffectError, NoEffectWarning
from tfvolta.outcome import Status

X = np.random.RandomState(0).randn(32, 8).astype("float32")
Y = X.sum(axis=1, keepdims=True).astype("float32")


class Unscaled(keras.Model):
    """Takes its gradients as tutorials for float32 do."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.head = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.head(self.hidden(inputs))

    def scaled(self, loss: Any) -> Any:
        return loss

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(self(x, training=True), tf.float32) - y))
            target = self.scaled(loss)
        gradients = tape.gradient(target, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class Scaled(Unscaled):
    """The same, with Keras's own call for it."""

    def scaled(self, loss: Any) -> Any:
        return self.optimizer.scale_loss(loss) if KERAS3 else self.optimizer.get_scaled_loss(loss)


class PhysicsInformed(keras.Model):
    """Takes gradients in its call, and leaves the train step to Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.head = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = self.head(self.hidden(inputs))
        slope = tape.gradient(output, inputs)
        return tf.cast(output, tf.float32) + 0.01 * tf.cast(tf.reduce_mean(slope, axis=1, keepdims=True), tf.float32)


def _model(cls: Any) -> Any:
    keras.utils.set_random_seed(3)
    model = cls()
    model(X[:2])
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
    return model


def _moved(model: Any, callbacks: list[Any]) -> float:
    before = [np.array(weight) for weight in model.get_weights()]
    model.fit(X, Y, batch_size=16, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
    return float(sum(np.abs(a - b).sum() for a, b in zip(model.get_weights(), before)))


def test_an_unscaled_step_is_refused_before_it_trains() -> None:
    model = _model(Unscaled)
    before = model.get_weights()
    with pytest.raises(NoEffectError, match="never scales the loss") as caught:
        model.fit(X, Y, verbose=0, callbacks=[tfvolta.callbacks.MixedPrecision()])
    (problem,) = caught.value.problems
    assert "--set mixed_precision.policy=float32" in problem.fix and "{" not in problem.expected
    assert all((a == b).all() for a, b in zip(model.get_weights(), before))


def test_an_unscaled_step_trains_as_it_is_where_it_is_only_warned_of() -> None:
    plain = _moved(_model(Unscaled), [])
    with pytest.warns(NoEffectWarning, match="never scales the loss"):
        mixed = _moved(_model(Unscaled), [tfvolta.callbacks.MixedPrecision(strict=False)])
    assert mixed == pytest.approx(plain, rel=0.05)


@pytest.mark.skipif(not KERAS3, reason="Keras 2's scaled loss needs its gradients unscaled by hand")
def test_a_scaled_step_is_applied() -> None:
    callback = tfvolta.callbacks.MixedPrecision(initial_scale=128.0)
    plain = _moved(_model(Unscaled), [])
    assert _moved(_model(Scaled), [callback]) == pytest.approx(plain, rel=0.05)
    assert callback.session.endings["loss_scale"].outcome.status is Status.APPLIED


def test_gradients_in_a_call_are_not_a_train_step() -> None:
    from tfvolta.bridge.own_step import leaves_loss_unscaled

    assert not leaves_loss_unscaled(_model(PhysicsInformed))
    assert leaves_loss_unscaled(_model(Unscaled)) and not leaves_loss_unscaled(_model(Scaled))


def test_a_sequential_without_an_input_is_served_when_it_is_built() -> None:
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    callback = tfvolta.callbacks.MixedPrecision()
    model.fit(X, Y, batch_size=16, verbose=0, callbacks=[callback])
    assert callback.session.endings["retrofit"].outcome.status is Status.APPLIED


def test_callbacks_of_equal_arguments_keep_their_own_outcomes_and_no_model_alive() -> None:
    alive, callbacks = [], []
    for scale in (64.0, 64.0, 128.0):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        callback = tfvolta.callbacks.MixedPrecision(initial_scale=scale)
        model.fit(X, Y, batch_size=16, verbose=0, callbacks=[callback])
        alive.append(weakref.ref(model))
        callbacks.append(callback.session)
        del model, callback
    keras.backend.clear_session()
    gc.collect()
    assert len({id(session) for session in callbacks}) == 3
    assert sum(reference() is not None for reference in alive) <= 1, "Keras itself may hold the last one"
