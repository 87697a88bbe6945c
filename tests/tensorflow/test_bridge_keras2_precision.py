"""Retrofitting mixed precision to Keras 2 models: what is computed in which precision, and taking it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tests.tensorflow.bridge_keras2_models import containers_model, mixed, mixing_model
from tfvolta.errors import BridgeError

L = keras.layers
BRIDGE = models.bridge()
AUTOCAST = BRIDGE.package.autocast.AutoCastVariable


def float32_products(model: Any) -> int:
    """Forward and backward products and convolutions in float32."""
    return models.computing(BRIDGE.train_graph(model), "float32")


@pytest.mark.parametrize("hook", ["set_model", "on_train_begin", "on_epoch_begin"])
@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_every_hook_makes_the_step_compute_in_float16(kind: str, hook: str) -> None:
    model = models.compiled(models.IMAGE_MODELS[kind])
    losses = models.train(model, epochs=3, callbacks=[models.Arrange(mixed, hook)])
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", [*models.IMAGE_MODELS, "zoo"])
def test_computes_in_float16_apart_from_the_outputs(kind: str) -> None:
    build = models.zoo if kind == "zoo" else models.IMAGE_MODELS[kind]
    model = models.compiled(build)
    models.train(model, epochs=1)  # traced in float32 first
    assert models.computing(BRIDGE.train_graph(model), "float16") == 0
    result = mixed(model)
    losses = models.train(model, epochs=3)
    summary = BRIDGE.train_graph(model)
    # Each dense output layer has three float32 products: forward, and the gradients of its input and kernel.
    dense_islands = sum(1 for path in result.islands if isinstance(dict(BRIDGE.layers(model))[path], L.Dense))
    assert models.computing(summary, "float32") <= 3 * dense_islands * summary.traces
    assert models.computing(summary, "float16") > 0
    assert result.refused == ()
    assert {variable.dtype.name for variable in model.variables} == {"float32"}
    assert losses[-1] < losses[0]
    assert all(BRIDGE.compute_dtypes(model)[path] == "float32" for path in BRIDGE.output_layers(model))


@pytest.mark.parametrize("kind", ["functional", "sequential", "nested", "subclassed", "zoo"])
def test_loss_is_bit_identical_to_a_model_built_under_the_policy(kind: str) -> None:
    build = models.zoo if kind == "zoo" else models.IMAGE_MODELS[kind]
    model = models.compiled(build)
    result = mixed(model)
    positions = [index for index, (path, _) in enumerate(BRIDGE.layers(model)) if path in result.islands]
    retrofitted = models.train(model)
    with models.built_under("mixed_float16"):
        reference = models.compiled(build)
    assert isinstance(reference.optimizer, keras.mixed_precision.LossScaleOptimizer)
    layers = BRIDGE.layers(reference)
    for index in positions:
        layers[index][1]._set_dtype_policy("float32")  # what dtype="float32" at construction does
    assert retrofitted == models.train(reference)


def test_undo_restores_every_attribute_and_float32_results() -> None:
    for build in (models.functional, models.nested, models.subclassed, models.zoo, containers_model):
        model = models.compiled(build)
        layers = [model, *(layer for _, layer in BRIDGE.layers(model))]
        before = [{key: id(value) for key, value in vars(layer).items() if key != "train_function"} for layer in layers]
        policies = [layer.dtype_policy.name for layer in layers]
        x, _ = models.data(model)
        expected = model(x[:4]).numpy()
        result = BRIDGE.retrofit(model, "mixed_float16", float32_output=False)
        changed = any(isinstance(value, AUTOCAST) for layer in layers for value in vars(layer).values())
        assert changed or build is containers_model
        BRIDGE.undo_retrofit(model, result)
        after = [{key: id(value) for key, value in vars(layer).items() if key != "train_function"} for layer in layers]
        for first, second in zip(before, after):
            ignored = {"_dtype_policy", "_thread_local", "_compute_dtype_object", "_inbound_nodes_value", "_called"}
            assert {k: v for k, v in first.items() if k not in ignored} == {
                k: v for k, v in second.items() if k in first and k not in ignored
            }
        assert [layer.dtype_policy.name for layer in layers] == policies
        np.testing.assert_array_equal(model(x[:4]).numpy(), expected)
        models.train(model, epochs=1)
        assert models.computing(BRIDGE.train_graph(model), "float16") == 0
        BRIDGE.undo_retrofit(model, result)  # nothing left to do


def test_a_second_retrofit_changes_nothing_and_keeps_the_trace() -> None:
    for build in (models.functional, models.subclassed, mixing_model):
        model = models.compiled(build)
        first = mixed(model)
        models.train(model, epochs=1)
        function = model.train_function
        second = BRIDGE.retrofit(model, "mixed_float16")
        assert (second.converted, second.islands) == ((), first.islands)
        assert [item.name for item in second.refused] == [item.name for item in first.refused]
        assert model.train_function is function
        BRIDGE.undo_retrofit(model, second)
        assert "mixed_float16" in {layer.dtype_policy.name for _, layer in BRIDGE.layers(model)}


def test_a_half_converted_model_is_completed() -> None:
    model = models.compiled(models.functional)
    BRIDGE.retrofit(model, "mixed_float16", float32_layers=["Dense", "*Conv2D"])
    assert float32_layers_of(model) >= {"conv2d", "dense"}
    result = mixed(model)
    models.train(model, epochs=1)
    assert float32_layers_of(model) == {"dense"}  # the head
    assert set(result.islands) == {"head"}


def float32_layers_of(model: Any) -> set[str]:
    """Kinds of layers with weights that compute in float32."""
    dtypes = BRIDGE.compute_dtypes(model)
    return {type(layer).__name__.lower() for path, layer in BRIDGE.layers(model) if dtypes.get(path) == "float32"}


def test_a_model_built_under_the_policy_is_left_alone() -> None:
    with models.built_under("mixed_float16"):
        model = models.compiled(models.functional)
    before = {key: id(value) for _, layer in BRIDGE.layers(model) for key, value in vars(layer).items()}
    result = BRIDGE.retrofit(model, "mixed_float16", float32_output=False)
    assert {key: id(value) for _, layer in BRIDGE.layers(model) for key, value in vars(layer).items()} == before
    assert result.converted == result.islands == result.refused == ()


def test_islands_by_class_name_path_and_pattern() -> None:
    model = models.compiled(models.zoo)
    patterns = ["GRU", "multi_head*", "*/forward_lstm*", "time_distributed*"]
    result = mixed(model, float32_layers=patterns, float32_output=False)
    # A float32 layer inside a wrapper: the wrapper's own code, which joins both directions, cannot mix precisions.
    assert [item.class_name for item in result.refused] == ["Bidirectional"]
    dtypes = BRIDGE.compute_dtypes(model)
    dtypes.pop(result.refused[0].name)
    for path, dtype in dtypes.items():
        inside = any(word in path for word in ("gru", "multi_head", "/forward_lstm", "time_distributed"))
        assert dtype == ("float32" if inside else "float16"), path
    losses = models.train(model)
    assert losses[-1] < losses[0]


def test_float32_output_follows_what_only_passes_values_on() -> None:
    model = models.compiled(models.multi_output)
    assert set(BRIDGE.output_layers(model)) == {"a", "b", "b_dense"}
    mixed(model)
    assert [output.dtype.name for output in model(models.IMAGES[:2])] == ["float32", "float32"]
    softmaxes = BRIDGE.train_graph(_trained(model)).count("Softmax", "float32")
    assert softmaxes > 0
    assert BRIDGE.train_graph(model).count("Softmax", "float16") == 0


def _trained(model: Any) -> Any:
    models.train(model, epochs=1)
    return model


def test_output_made_by_a_tensorflow_call_keeps_the_layer_before_it_in_float32() -> None:
    inputs = keras.Input((4,))
    hidden = L.Dense(8, name="hidden")(inputs)
    model = keras.Model(inputs, tf.nn.softmax(L.Dense(3, name="logits")(hidden) * 2.0))
    model.compile("sgd", "sparse_categorical_crossentropy")
    result = mixed(model)
    assert result.islands == ("logits",)
    assert model(np.ones((2, 4), "float32")).dtype == "float32"


def test_output_of_a_subclassed_model_whose_code_ends_in_float16_is_cast() -> None:
    class Sum(keras.Model):  # type: ignore[misc,name-defined]
        def call(self, inputs: Any) -> Any:
            return tf.reduce_mean(inputs, axis=1)

    model = Sum()
    model(np.ones((2, 4), "float32"))
    BRIDGE.retrofit(model, "mixed_float16")
    assert model(np.ones((2, 4), "float32")).dtype == "float32"


def test_stateful_recurrent_layers_keep_their_state() -> None:
    model = keras.Sequential([L.LSTM(6, stateful=True, batch_input_shape=(4, 3, 5)), L.Dense(2, name="head")])
    model.compile("sgd", "mse")
    assert mixed(model).refused == ()
    model.fit(np.ones((8, 3, 5), "float32"), np.ones((8, 2), "float32"), batch_size=4, verbose=0, shuffle=False)
    assert float(np.abs(model.layers[0].states[0].numpy()).sum()) > 0
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(BridgeError, match="mixed_float16"):
        BRIDGE.retrofit(models.functional(), "float16")


def test_paths_are_unique_and_reach_cells_and_inner_layers() -> None:
    layers = BRIDGE.layers(models.zoo())
    paths = [path for path, _ in layers]
    assert len(set(paths)) == len(paths)
    assert len({id(layer) for _, layer in layers}) == len(layers)
    classes = {type(layer).__name__ for _, layer in layers}
    assert {"LSTMCell", "GRUCell", "SimpleRNNCell", "EinsumDense", "Dense", "InputLayer"} <= classes
