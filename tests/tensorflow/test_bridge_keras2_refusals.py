"""Layers and models of Keras 2 with code of their own: what cannot compute in float16 is refused alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tests.tensorflow.bridge_keras2_models import Mixing, containers_model, mixed, mixing_model

L = keras.layers
BRIDGE = models.bridge()


def test_variables_in_containers_and_modules_are_cast_and_still_saved(tmp_path: Any) -> None:
    model = models.compiled(containers_model)
    result = mixed(model)
    assert result.refused == ()
    assert "containers" in result.converted
    losses = models.train(model)
    assert losses[-1] < losses[0]
    assert BRIDGE.train_graph(model).count("Mul", "float16") >= 6
    assert len(model.trainable_variables) == 10
    path = str(tmp_path / "weights")
    model.save_weights(path)
    fresh = models.compiled(containers_model)
    fresh.load_weights(path)
    for first, second in zip(model.weights, fresh.weights):
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_a_layer_that_mixes_dtypes_is_refused_alone_with_the_error_text(tmp_path: Any) -> None:
    model = models.compiled(mixing_model)
    result = mixed(model)
    assert [(item.name, item.class_name) for item in result.refused] == [("mixing", "Mixing")]
    assert "float32" in result.refused[0].reason
    assert "half" in result.refused[0].reason or "float16" in result.refused[0].reason
    dtypes = BRIDGE.compute_dtypes(model)
    assert dtypes["mixing"] == "float32"
    assert dtypes["last"] == "float16"
    assert next(dtype for path, dtype in dtypes.items() if path.startswith("mixing/")) == "float16"
    losses = models.train(model)
    assert losses[-1] < losses[0]
    for name in ("m.keras", "saved_model"):
        model.save(str(tmp_path / name))
        loaded = keras.models.load_model(str(tmp_path / name), custom_objects={"Mixing": Mixing})
        assert loaded.get_layer("last").compute_dtype == "float16"
        np.testing.assert_allclose(loaded(models.IMAGES[:4]), model(models.IMAGES[:4]), atol=1e-2)


def test_the_code_of_a_model_that_mixes_dtypes_is_refused_and_its_layers_are_not() -> None:
    class Model(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.first, self.head = L.Flatten(), L.Dense(8), L.Dense(models.CLASSES, activation="softmax")

        def call(self, inputs: Any) -> Any:
            hidden = self.first(self.flat(inputs))
            return self.head(hidden + tf.ones_like(hidden, dtype=tf.float32))

    def build() -> Any:
        model = Model()
        model(models.IMAGES[:1])
        return model

    model = models.compiled(build)
    result = mixed(model)
    assert [item.class_name for item in result.refused] == ["Model"]
    losses = models.train(model)
    assert models.computing(BRIDGE.train_graph(model), "float16") > 0
    assert losses[-1] < losses[0]


def test_operations_that_would_meet_two_dtypes_get_float32(tmp_path: Any) -> None:
    inputs = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same", name="conv")(inputs)
    y = L.BatchNormalization(name="norm")(x)
    head = L.Dense(models.CLASSES, activation="softmax", name="head")
    model = keras.Model(inputs, head(L.Flatten()(tf.add(x, y))))
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    result = mixed(model, float32_layers=["BatchNormalization"])
    assert "norm" in result.islands
    assert [item.class_name for item in result.refused] == ["TFOpLambda"]
    losses = models.train(model)
    assert BRIDGE.train_graph(model).count("Conv2D", "float16") > 0
    assert losses[-1] < losses[0]
    # A config has no place for the casts in between, so the saved model is one of float32, with all its state.
    assert "SavedModel" in result.refused[0].reason
    path = str(tmp_path / "m.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    assert {layer.dtype_policy.name for layer in loaded.layers} == {"float32"}
    np.testing.assert_allclose(loaded(models.IMAGES[:4]), model(models.IMAGES[:4]), atol=1e-2)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)
    BRIDGE.undo_retrofit(model, result)
    assert model.get_layer("conv").get_config()["dtype"] == "float32"
    assert "get_config" not in vars(model.get_layer("conv"))


def test_a_script_error_that_has_nothing_to_do_with_precision_refuses_only_custom_layers() -> None:
    class Broken(L.Layer):  # type: ignore[misc,name-defined]
        broken = False

        def call(self, inputs: Any) -> Any:
            if self.broken:
                raise RuntimeError("no such file")
            return inputs

    inputs = keras.Input((4,))
    broken = Broken(name="broken")
    model = keras.Model(inputs, L.Dense(2, name="head")(broken(L.Dense(8, name="dense")(inputs))))
    broken.broken = True
    result = BRIDGE.retrofit(model, "mixed_float16")
    assert result.converted == ("dense",)
    assert [item.name for item in result.refused] == ["broken"]
    assert "no such file" in result.refused[0].reason


def test_layers_that_cannot_compute_in_float16_are_refused_with_a_reason() -> None:
    pixels, words = keras.Input((4, 4, 1), name="pixels"), keras.Input((1,), dtype="string", name="words")
    x = L.Dense(4, name="wide", dtype="float64")(L.Flatten()(L.Rescaling(1 / 255, name="rescaling")(pixels)))
    y = L.Embedding(5, 4, name="embedding")(L.StringLookup(vocabulary=["a", "b"], name="lookup")(words))
    z = L.Concatenate(name="join")([x, L.Flatten()(y)])
    model = keras.Model([pixels, words], L.Dense(2, name="head")(L.Dense(4, name="hidden")(z)))
    result = BRIDGE.retrofit(model, "mixed_float16")
    reasons = {item.name: item.reason for item in result.refused}
    assert set(reasons) == {"wide", "rescaling", "lookup"}
    assert "float64" in reasons["wide"]
    assert "strings" in reasons["lookup"]
    assert "float32" in reasons["rescaling"]
    dtypes = BRIDGE.compute_dtypes(model)
    assert (dtypes["wide"], dtypes["rescaling"], dtypes["hidden"]) == ("float64", "float32", "float16")
    seen = []
    model.get_layer("rescaling").call = _spy(model.get_layer("rescaling").call, seen)
    model([np.ones((2, 4, 4, 1), "float32"), tf.constant([["a"], ["b"]])])
    assert seen == ["float32"]


def _spy(call: Any, seen: list[str]) -> Any:
    def wrapper(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(inputs.dtype.name)
        return call(inputs, *args, **kwargs)

    return wrapper


def test_control_flow_in_a_refused_layer_is_still_converted_by_autograph() -> None:
    class Branch(Mixing):
        def call(self, inputs: Any) -> Any:
            if tf.reduce_sum(inputs) > 0:  # a tensor: only AutoGraph makes this work in a graph
                inputs = inputs * tf.constant([2.0])
            return inputs

    inputs = keras.Input((8, 8, 3))
    x = Branch(name="branch")(L.Dense(8)(L.Flatten()(inputs)))
    model = keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax")(x))
    model.compile("sgd", "sparse_categorical_crossentropy")
    result = mixed(model)
    assert [item.name for item in result.refused] == ["branch"]
    models.train(model, epochs=1)


def test_a_trial_run_leaves_random_numbers_alone() -> None:
    def build() -> Any:
        inputs = keras.Input((8, 8, 3))
        x = L.Lambda(lambda value: value * 2.0)(L.Dropout(0.5)(L.Flatten()(inputs)))
        return keras.Model(inputs, L.Dense(models.CLASSES, activation="softmax", name="head")(L.Dense(8)(x)))

    model = models.compiled(build)
    result = mixed(model)
    assert result.refused == ()
    retrofitted = models.train(model)
    with models.built_under("mixed_float16"):
        reference = models.compiled(build)
    reference.get_layer("head")._set_dtype_policy("float32")
    assert retrofitted == models.train(reference)
