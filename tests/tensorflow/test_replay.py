"""Looking into a bad step: the layer that was not finite first, in every kind of model, on every stack."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings

BRIDGE = bridge_for_stack(STACK)
POLICY = keras.config.set_dtype_policy if KERAS3 else keras.mixed_precision.set_global_policy


class Scale(keras.layers.Layer):
    """A layer of one's own that multiplies; in float16 1e4 times 10 is infinite."""

    def __init__(self, factor: float, **arguments: Any):
        super().__init__(**arguments)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        return inputs * tf.cast(self.factor, inputs.dtype)


class Steep(keras.layers.Layer):
    """Hands its inputs on, and makes their gradient too large for float16."""

    def call(self, inputs: Any) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def run(value: Any) -> Any:
            return tf.identity(value), lambda gradient: gradient * tf.cast(60000.0, gradient.dtype)

        return run(inputs)


def lambda_layer(factor: float) -> Any:
    return keras.layers.Lambda(lambda x: x * factor, name="middle")


def own_layer(factor: float) -> Any:
    return Scale(factor, name="middle")


def parts(middle: Any) -> list[Any]:
    dense = keras.layers.Dense
    return [
        dense(3, kernel_initializer="ones", name="first"),
        keras.layers.BatchNormalization(name="norm"),
        middle,
        keras.layers.Dropout(0.25, name="drop"),
        dense(1, kernel_initializer="ones", dtype="float32", name="last"),
    ]


def sequential(middle: Any) -> Any:
    return keras.Sequential([keras.Input((2,)), *parts(middle)])


def functional(middle: Any) -> Any:
    inputs = keras.Input((2,))
    first, norm, middle, drop, last = parts(middle)
    inner_input = keras.Input((3,))
    inner = keras.Model(inner_input, drop(middle(inner_input)), name="inner")
    return keras.Model(inputs, last(inner(norm(first(inputs)))))


class Subclassed(keras.Model):
    """Holds its layers in a list."""

    def __init__(self, middle: Any):
        super().__init__()
        self.parts = parts(middle)

    def call(self, inputs: Any, training: Any = None) -> Any:
        for layer in self.parts[:-2]:
            inputs = layer(inputs)
        return self.parts[-1](self.parts[-2](inputs, training=training))


KINDS: dict[str, Callable[[Any], Any]] = {
    "sequential": sequential,
    "functional": functional,
    "subclassed": Subclassed,
}
WHERE = {"sequential": "middle", "functional": "inner/middle", "subclassed": "middle"}


@pytest.fixture(autouse=True)
def _policy() -> Any:
    POLICY("mixed_float16")
    yield
    POLICY("float32")


def compiled(kind: str, middle: Any, **arguments: Any) -> Any:
    model = KINDS[kind](middle)
    model(np.zeros((1, 2), "float32"))
    model.compile(keras.optimizers.SGD(0.01), "mse", **arguments)
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial=4.0))
    BRIDGE.keep_batches(model, 2)
    return model


def train(model: Any, x: Any = None, y: Any = None, batches: int = 3) -> None:
    class Keeps(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            BRIDGE.start_keeping(self.model)

    x = np.linspace(-1, 1, 8 * batches).reshape(-1, 2).astype("float32") if x is None else x
    y = np.zeros((len(x), 1), "float32") if y is None else y
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[Keeps()])


def state(model: Any) -> list[Any]:
    groups = BRIDGE.training_variables(model)
    return [variable.numpy() for held in groups.values() for _, variable in held]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("middle", [lambda_layer, own_layer])
def test_the_layer_whose_outputs_are_infinite_is_named(kind: str, middle: Callable[[float], Any]) -> None:
    model = compiled(kind, middle(60000.0))
    train(model)
    before = state(model)
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.layer) == ("activations", WHERE[kind])
    assert found.class_name == ("Lambda" if middle is lambda_layer else "Scale")
    assert "float16" in found.detail and "inf" in found.detail
    for was, now in zip(before, state(model)):
        np.testing.assert_array_equal(was, now)
    train(model)  # and the model trains on as it did


@pytest.mark.parametrize("kind", KINDS)
def test_the_layer_in_which_gradients_become_infinite_is_named(kind: str) -> None:
    model = compiled(kind, Steep(name="middle"))
    train(model, y=np.full((12, 1), 100.0, "float32"))
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.layer, found.class_name) == ("gradients", WHERE[kind], "Steep")
    assert found.loss_scale is not None and found.loss_scale >= 1.0


def test_weights_come_first_then_inputs_then_targets_then_the_loss() -> None:
    model = compiled("functional", own_layer(1.0))
    good = np.ones((8, 2), "float32")
    train(model, good)
    assert BRIDGE.find_culprit(model).kind == "nothing"
    bad = good.copy()
    bad[5, 1] = np.nan
    train(model, bad)
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.layer, found.batches_ago) == ("inputs", "", 0)
    train(model, good, np.full((8, 1), np.inf, "float32"))
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.batches_ago) == ("targets", 1)
    weights = model.get_layer("last").get_weights()
    model.get_layer("last").set_weights([weights[0] * np.nan, weights[1]])
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.layer, found.class_name) == ("weights", "last", "Dense")
    assert len(BRIDGE.bad_weights(model)) == 1
    # The forward pass of the batch with a NaN has changed the moving statistics, although its step was skipped.
    assert len(BRIDGE.bad_weights(model, trainable=False)) == 2


def test_a_loss_that_is_not_finite_where_all_layers_are() -> None:
    model = functional(own_layer(1.0))
    model.compile(keras.optimizers.SGD(0.01), lambda _, y: tf.math.log(y * 0.0 - 1.0))
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial=4.0))
    BRIDGE.keep_batches(model, 1)
    train(model)
    assert BRIDGE.find_culprit(model).kind == "loss"


def test_code_between_two_layers_is_told_from_the_layers() -> None:
    class Between(Subclassed):
        def call(self, inputs: Any, training: Any = None) -> Any:
            hidden = self.parts[0](inputs)
            return self.parts[-1](hidden * tf.cast(60000.0, hidden.dtype) * 10.0)

    model = Between(own_layer(1.0))
    model(np.zeros((1, 2), "float32"))
    model.compile(keras.optimizers.SGD(0.01), "mse")
    BRIDGE.keep_batches(model, 1)
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial=4.0))
    train(model)
    found = BRIDGE.find_culprit(model)
    assert (found.kind, found.layer) == ("activations", "last") and "code of the model" in found.detail


def test_damaged_weights_are_replaced_by_remembered_ones_for_the_search() -> None:
    POLICY("float32")
    model = functional(keras.layers.Lambda(lambda x: tf.math.log(x - 100.0), name="middle"))
    model.compile(keras.optimizers.SGD(0.01), "mse")
    BRIDGE.keep_batches(model, 2)
    remembered = BRIDGE.remembered_weights(model)
    train(model)
    assert BRIDGE.find_culprit(model).kind == "weights"
    before = state(model)
    found = BRIDGE.find_culprit(model, remembered)
    assert (found.kind, found.layer, found.remembered_weights) == ("activations", "inner/middle", True)
    for was, now in zip(before, state(model)):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("eager", [False, True])
def test_a_window_and_an_eager_model_keep_their_batches(eager: bool) -> None:
    model = compiled("sequential", own_layer(60000.0), run_eagerly=eager)
    BRIDGE.set_reduction(model, every=2)
    train(model)
    assert BRIDGE.find_culprit(model).layer == "middle"


def test_calls_of_several_batches_keep_none_and_say_so() -> None:
    model = compiled("sequential", own_layer(60000.0), steps_per_execution=2)
    train(model)
    assert "no batch is kept" in BRIDGE.find_culprit(model).detail
