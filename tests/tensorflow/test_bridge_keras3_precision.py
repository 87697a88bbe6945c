"""Keras 3: a built model computes in float16 after a retrofit, seen in the traced graph; refusals name their reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings, Retrofit
from tfvolta.errors import BridgeError

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)


def images(count: int = 48) -> tuple[Any, Any]:
    """Small images whose class is the brightest channel of three."""
    x = np.random.RandomState(0).randn(count, 8, 8, 3).astype("float32")
    return x, x.mean((1, 2)).argmax(-1).astype("int32")


class AtSetModel(keras.callbacks.Callback):
    """Retrofits where fit allows it first."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments
        self.result: Any = None

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.result = BRIDGE.retrofit(model, "mixed_float16", **self.arguments)
        BRIDGE.install_loss_scale(model, LossScaleSettings())


def fit(model: Any, x: Any, y: Any, epochs: int = 1, **arguments: Any) -> tuple[Retrofit, list[float]]:
    """Compiles, fits with a retrofit, and hands out what it did and the losses."""
    if not model.compiled:
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    callback = AtSetModel(**arguments)
    history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False, callbacks=[callback])
    return callback.result, history.history["loss"]


class Subclassed(keras.Model):
    """Layers in a list and in a dictionary, and a model inside."""

    def __init__(self, mixes: bool = False) -> None:
        super().__init__()
        self.mixes = mixes
        self.convolutions = [layers.Conv2D(8, 3), layers.Conv2D(8, 3)]
        self.flatten = layers.Flatten()
        self.dense = {"hidden": layers.Dense(8)}
        self.head = keras.Sequential([layers.Dense(3)])

    def call(self, x: Any, training: bool = False) -> Any:
        for convolution in self.convolutions:
            x = convolution(x)
        if self.mixes:
            x = x * tf.constant(2.0, tf.float32)
        return tf.nn.softmax(self.head(self.dense["hidden"](self.flatten(x))))


def zoo() -> Any:
    """One of each layer that owns others or loops."""
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 8)(tokens)
    x = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    x = layers.GRU(4, return_sequences=True)(x)
    x = layers.RNN([layers.LSTMCell(3), layers.GRUCell(3)], return_sequences=True)(x)
    x = layers.TimeDistributed(layers.Dense(5))(x)
    return keras.Model(tokens, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def test_every_layer_of_the_zoo_computes_in_float16() -> None:
    model = zoo()
    x = np.random.RandomState(0).randint(0, 20, (32, 6))
    result, _ = fit(model, x, x[:, 0] % 3)
    assert result.refused == () and len(result.islands) == 1
    dtypes = BRIDGE.compute_dtypes(model)
    assert {path for path, dtype in dtypes.items() if dtype == "float32"} == set(result.islands)
    graph = BRIDGE.train_graph(model)
    assert graph.count("MatMul", "float16") > 40 and graph.count("Einsum", "float16") > 0
    assert graph.count("MatMul", "float32") == 3  # the output layer: forward, and two gradients
    assert graph.count("BatchMatMulV2", "float16") > 0 and graph.count("BatchMatMulV2", "float32") == 0
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


def test_islands_by_class_name_and_path_take_what_is_inside_along() -> None:
    model = zoo()
    x = np.random.RandomState(0).randint(0, 20, (16, 6))
    result, _ = fit(model, x, x[:, 0] % 3, float32_layers=("LSTMCell", "Layer[N]orm*", "multi_head_*/softmax*"))
    inside = [path for path, layer in BRIDGE.layers(model) if isinstance(layer, (layers.LSTM, layers.LSTMCell))]
    assert inside and set(inside) <= set(result.islands)
    assert any("/stacked_rnn_cells" in path for path in result.islands)  # a loop's state has one dtype
    assert any(path.startswith("layer_normalization") for path in result.islands)
    assert any("/softmax" in path for path in result.islands)
    assert any(path.startswith("gru") for path in result.converted)
    assert BRIDGE.train_graph(model).count("MatMul", "float32") > 3


@pytest.mark.parametrize("built", [False, True])
def test_subclassed_model_with_layers_in_a_list_and_a_dictionary(built: bool) -> None:
    x, y = images()
    model = Subclassed()
    if built:
        model(x[:2])
    result, loss = fit(model, x, y, epochs=3)
    assert loss[-1] < loss[0]
    assert len(result.converted) == 5 and len(result.islands) == 1  # the dense layer under the softmax
    graph = BRIDGE.train_graph(model)
    assert graph.count("Conv2D", "float16") > 0 and graph.count("Conv2D", "float32") == 0
    assert graph.count("Softmax", "float32") > 0 and graph.count("Softmax", "float16") == 0
    assert model.predict(x[:2], verbose=0).dtype == "float32"


@pytest.mark.parametrize("built", [False, True])
def test_a_model_that_mixes_dtypes_in_its_own_call_costs_one_layer(built: bool) -> None:
    x, y = images()
    model = Subclassed(mixes=True)
    if built:
        model(x[:2])
    result, loss = fit(model, x, y, epochs=2)
    assert np.isfinite(loss).all()
    (refused,) = result.refused
    assert refused.class_name == "Subclassed" and "float32 that does not match type float16" in refused.reason
    graph = BRIDGE.train_graph(model)
    assert graph.count("Conv2D", "float16") == graph.count("Conv2D", "float32") == 1
    assert graph.count("MatMul", "float16") > 0


def test_outside_a_fit_an_unbuilt_model_returns_float32_by_a_cast() -> None:
    x, _ = images(2)
    model = Subclassed()
    done = BRIDGE.retrofit(model, "mixed_float16")
    assert BRIDGE.output_layers(model) == []
    assert model(x).dtype == "float32" and model.convolutions[0].compute_dtype == "float16"
    BRIDGE.undo_retrofit(model, done)
    assert "call" not in model.__dict__ and model(x).dtype == "float32"


def custom_layers() -> dict[str, Any]:
    class CastsBeforeMatmul(layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")

        def call(self, x: Any) -> Any:
            return tf.matmul(tf.cast(x, tf.float32), self.kernel)

    class Constant(layers.Layer):
        def call(self, x: Any) -> Any:
            return x * tf.constant(2.0, tf.float32)

    class CastsAndReturns(layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.nn.relu(tf.cast(x, tf.float32))

    class Unscaled(layers.Layer):
        def __init__(self) -> None:
            super().__init__(autocast=False)

        def call(self, x: Any) -> Any:
            return x

    return {cls.__name__: cls for cls in (CastsBeforeMatmul, Constant, CastsAndReturns, Unscaled)}


def test_custom_layers_are_tried_and_refused_singly() -> None:
    custom = custom_layers()
    inputs = keras.Input((8,))
    x = layers.Dense(8)(inputs)
    for cls in custom.values():
        x = layers.Dense(8)(cls()(x))
    x = layers.Lambda(lambda v: v + tf.ones((1,), tf.float32))(x)
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.Dense(8)(x)))
    data = np.random.RandomState(0).randn(32, 8).astype("float32")
    result, loss = fit(model, data, (data[:, 0] > 0).astype("int32"))
    assert np.isfinite(loss).all()
    refused = {item.class_name: item.reason for item in result.refused}
    assert set(refused) == {"CastsBeforeMatmul", "Constant", "Unscaled", "Lambda"}
    assert "MatMul" in refused["CastsBeforeMatmul"] and "autocast=False" in refused["Unscaled"]
    assert not any("\x1b" in reason or "Arguments received" in reason for reason in refused.values())
    assert BRIDGE.train_graph(model).count("MatMul", "float16") >= 5  # the dense layers between them
    again = BRIDGE.retrofit(model, "mixed_float16")
    assert again.converted == () and {item.class_name for item in again.refused} == set(refused)
    assert BRIDGE.is_traced(model)  # nothing changed, so nothing is traced anew


def test_layers_that_cannot_take_a_policy_say_why() -> None:
    words = keras.Input((1,), dtype="string")
    number = keras.Input((4,))
    looked_up = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(words)
    joined = layers.Concatenate()([layers.Rescaling(1 / 255.0)(number), layers.Dense(3, dtype="float64")(number)])
    joined = layers.Concatenate()([joined, layers.Dense(3)(number), layers.Flatten()(looked_up)])
    quantised = layers.Dense(4)
    hidden = quantised(joined)
    quantised.quantize("int8")
    model = keras.Model([words, number], layers.Dense(2, name="end")(hidden))
    result = BRIDGE.retrofit(model, "mixed_float16")
    text = " | ".join(item.reason for item in result.refused)
    assert "preprocessing" in text and "float64" in text and "int8" in text
    assert len(result.refused) == 4
    assert any(name.startswith("dense") for name in result.converted)


def test_undo_restores_the_same_policy_objects_and_a_second_policy_replaces_the_first() -> None:
    model = zoo()
    before = {path: layer.dtype_policy for path, layer in BRIDGE.layers(model)}
    first = BRIDGE.retrofit(model, "mixed_float16")
    second = BRIDGE.retrofit(model, "mixed_bfloat16")
    assert set(second.converted) == set(first.converted)
    assert model.layers[1].compute_dtype == "bfloat16" and model.dtype_policy.name == "mixed_bfloat16"
    BRIDGE.undo_retrofit(model, second)
    assert model.layers[1].compute_dtype == "float16"
    BRIDGE.undo_retrofit(model, first)
    assert all(layer.dtype_policy is before[path] for path, layer in BRIDGE.layers(model))
    assert model.dtype_policy.name == "float32"
    with pytest.raises(BridgeError, match="cannot be undone"):
        BRIDGE.undo_retrofit(zoo(), first)


def test_half_converted_models_are_completed() -> None:
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, dtype="mixed_float16", name="done")(inputs)
    model = keras.Model(inputs, layers.Dense(3)(layers.Dense(8, name="todo")(hidden)))
    kept = model.get_layer("done").dtype_policy
    result = BRIDGE.retrofit(model, "mixed_float16")
    assert result.converted == ("todo",) and model.get_layer("done").dtype_policy is kept


def test_output_layers_of_every_kind_of_model() -> None:
    inputs = keras.Input((8,))
    shared = layers.Dense(4, name="shared")(inputs)
    head = keras.Sequential(
        [layers.Dense(4), layers.Activation("softmax", name="soft"), layers.Reshape((2, 2), name="shape")], name="head"
    )
    operation = keras.ops.sigmoid(layers.Dense(2, name="op")(shared))
    outputs = [head(shared), layers.Dense(1, name="value")(shared), operation]
    model = keras.Model(inputs, outputs)
    assert set(BRIDGE.output_layers(model)) == {"head/soft", "head/shape", "value", "op"}
    pairs = layers.Reshape((2, 4))(inputs)
    wrapped = keras.Model(inputs, layers.TimeDistributed(layers.Dense(2, name="in"), name="td")(pairs))
    assert set(BRIDGE.output_layers(wrapped)) == {"td", "td/in"}
    unbuilt = keras.Sequential([layers.Dense(4), layers.Dense(3, name="last"), layers.Dropout(0.1, name="drop")])
    assert set(BRIDGE.output_layers(unbuilt)) == {"last", "drop"}
    BRIDGE.retrofit(model, "mixed_float16")
    assert [output.dtype for output in model(np.zeros((2, 8), "float32"))] == ["float32"] * 3


def test_float16_output_on_request_and_an_unknown_policy() -> None:
    model = zoo()
    result = BRIDGE.retrofit(model, "mixed_float16", float32_output=False)
    assert result.islands == () and model(np.zeros((2, 6), "int32")).dtype == "float16"
    with pytest.raises(BridgeError, match="mixed_float16, mixed_bfloat16"):
        BRIDGE.retrofit(model, "float16")
