"""A policy that comes after the layers is no silent no-op: the model is converted, or the report names what is not."""

from __future__ import annotations

import gc
import os
import pathlib
import weakref
from typing import Any, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import MixedPrecision
from tfvolta.errors import NoEffectError
from tfvolta.outcome import Status

X = np.random.RandomState(0).randn(32, 8).astype("float32")
Y = X[:, :1] * 0.5


@pytest.fixture(autouse=True)
def _float32_policy() -> Iterator[None]:
    """Each test starts and ends under Keras's default policy."""
    keras.mixed_precision.set_global_policy("float32")
    yield
    keras.mixed_precision.set_global_policy("float32")


def made(name: str = "model") -> Any:
    """A float32 model of two hidden layers and a head."""
    layers = [keras.layers.Dense(width, name=name) for width, name in ((8, "a"), (8, "b"), (1, "head"))]
    return keras.Sequential([keras.Input((8,)), *layers], name=name)


def compiled(model: Any, **arguments: Any) -> Any:
    model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError(), **{"jit_compile": False, **arguments})
    return model


def fit(model: Any, *callbacks: Any, **arguments: Any) -> Any:
    return model.fit(X, Y, batch_size=8, verbose=0, callbacks=list(callbacks), **arguments)


def dtypes(model: Any) -> dict[str, str]:
    return bridge_for(model).compute_dtypes(model)


def outcome(callback: Any, knob: str = "retrofit") -> Any:
    return callback.session.endings[knob].outcome


def converted(model: Any, callback: Any) -> dict[str, str]:
    """Fits, and asserts that the step multiplies in float16 under a loss scale; compute dtypes by path."""
    history = fit(model, callback, epochs=2)
    assert outcome(callback).status is Status.APPLIED, outcome(callback)
    assert outcome(callback, "loss_scale").status is Status.APPLIED
    assert bridge_for(model).train_graph(model).count("MatMul", "float16") >= 2
    assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
    assert {tf.as_dtype(variable.dtype).name for variable in model.trainable_variables} <= {"float32", "float64"}
    assert np.isfinite(history.history["loss"]).all()
    return dtypes(model)


def test_what_keras_does_alone() -> None:
    """The fault: policy, compile and fit succeed, and nothing computes in float16."""
    model = made()
    keras.mixed_precision.set_global_policy("mixed_float16")
    fit(compiled(model))
    assert set(dtypes(model).values()) == {"float32"}


def test_a_float32_model_is_converted() -> None:
    assert converted(compiled(made()), MixedPrecision()) == {"a": "float16", "b": "float16", "head": "float32"}


def test_a_config_after_the_model(tmp_path: pathlib.Path) -> None:
    model = compiled(made())
    config = tfvolta.load_config(run={"directory": str(tmp_path)}, mixed_precision={"policy": "mixed_float16"})
    tfvolta.build_strategy(config)
    callbacks = tfvolta.build_callbacks(config, model)
    assert converted(model, callbacks[0])["a"] == "float16"
    assert outcome(callbacks[0], "policy").status is Status.APPLIED


@pytest.mark.filterwarnings("ignore::tfvolta.errors.AuditWarning")  # of the float16 output, which is asked for
@pytest.mark.parametrize("float32_output", [True, False])
def test_a_half_converted_model_is_completed_and_both_groups_are_named(float32_output: bool) -> None:
    first = keras.layers.Dense(8, name="first")
    inputs = keras.Input((8,))
    hidden = first(inputs)
    keras.mixed_precision.set_global_policy("mixed_float16")
    hidden = keras.layers.Dense(8, name="second")(hidden)
    model = compiled(keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden)))
    config = tfvolta.load_config(
        run={"strict": True}, mixed_precision={"policy": "mixed_float16", "float32_output": float32_output}
    )
    from tfvolta.callbacks import ApplyPlan
    from tfvolta.session import Origin, Session

    callback = ApplyPlan(Session(config, origin=Origin(record=False)))
    found = converted(model, callback)
    assert found == {"first": "float16", "second": "float16", "head": "float32" if float32_output else "float16"}
    assert outcome(callback).observed["found_outside"] == ["first"]
    assert set(outcome(callback).observed["found_inside"]) >= {"second"}
    assert "first did not" in outcome(callback).message and "second" in outcome(callback).message


def test_a_layer_that_cannot_be_converted_is_named_with_the_reason() -> None:
    class Fixed(keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs + tf.ones((8,), tf.float32)

    inputs = keras.Input((8,))
    hidden = Fixed(name="fixed")(keras.layers.Dense(8, name="a")(inputs))
    model = compiled(keras.Model(inputs, keras.layers.Dense(1, name="head")(keras.layers.Dense(8, name="b")(hidden))))
    callback = MixedPrecision()
    found = converted(model, callback)
    assert found["a"] == found["b"] == "float16" and found.get("fixed", "float32") == "float32"
    assert "Fixed" in outcome(callback).observed["refused"]["fixed"]
    assert "fixed (Fixed" in outcome(callback).message


@pytest.mark.parametrize("named", [True, False])
def test_a_layer_that_casts_to_float32_itself_is_named(named: bool) -> None:
    """Its policy is float16, its products are not: a count of layers alone would look like success."""

    class Cast(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(int(shape[-1]), 8), initializer="glorot_uniform")
            super().build(shape)

        def call(self, inputs: Any) -> Any:
            return tf.matmul(tf.cast(inputs, tf.float32), tf.cast(self.kernel, tf.float32))

    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(8)(Cast(**({"name": "caster"} if named else {}))(inputs))
    model = compiled(keras.Model(inputs, keras.layers.Dense(1)(hidden)))
    callback = MixedPrecision()
    converted(model, callback)
    (path,) = outcome(callback).observed["own_float32"]
    assert path == ("caster" if named else model.layers[1].name)
    assert f"{path} multiplies in float32" in outcome(callback).message


def test_float64_and_pure_float16_layers_are_reported() -> None:
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(8, dtype="float64", name="wide")(inputs)
    model = compiled(keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8, name="b")(hidden))))
    callback = MixedPrecision()
    assert converted(model, callback)["wide"] == "float64"
    assert "float64" in outcome(callback).observed["refused"]["wide"]
    hidden = keras.layers.Dense(8, dtype="float16", name="half")(inputs)
    model = compiled(keras.Model(inputs, keras.layers.Dense(1)(hidden)))
    with pytest.raises(NoEffectError, match=r"not float32: .*half/kernel"):
        fit(model, MixedPrecision())


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("under_policy", [False, True])
def test_a_loaded_model(tmp_path: pathlib.Path, trained: bool, under_policy: bool) -> None:
    """A saved float32 model stays float32 when it is loaded, also under a global policy."""
    model = compiled(made())
    if trained:
        fit(model)
    model.save(tmp_path / "model.keras")
    if under_policy:
        keras.mixed_precision.set_global_policy("mixed_float16")
    # Keras 2 cannot load an optimizer without slots into the wrapper that it makes under a policy.
    loaded = compiled(keras.models.load_model(tmp_path / "model.keras", compile=not under_policy))
    assert dtypes(loaded)["a"] == "float32"
    assert converted(loaded, MixedPrecision()) == {"a": "float16", "b": "float16", "head": "float32"}


@pytest.mark.parametrize("of_converted", [False, True])
def test_a_cloned_model(of_converted: bool) -> None:
    model = compiled(made())
    if of_converted:
        converted(model, MixedPrecision())
    clone = compiled(keras.models.clone_model(model))
    assert converted(clone, MixedPrecision())["b"] == "float16"


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("head_under_policy", [False, True])
def test_a_pretrained_part_inside_a_new_model(frozen: bool, head_under_policy: bool) -> None:
    body = made("body")
    fit(compiled(body))
    body.trainable = not frozen
    if head_under_policy:
        keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((8,))
    model = compiled(keras.Model(inputs, keras.layers.Dense(1, name="top")(body(inputs))))
    before = [weight.copy() for weight in body.get_weights()]
    found = converted(model, MixedPrecision())
    assert found["body/a"] == found["body/b"] == "float16" and found["top"] == "float32"
    unchanged = all(np.array_equal(*pair) for pair in zip(before, body.get_weights()))
    assert unchanged is frozen


def test_a_layer_shared_by_two_models_and_undone_for_both() -> None:
    shared = keras.layers.Dense(8, name="shared")
    models = []
    for number in (1, 2):
        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(8, name=f"own{number}")(shared(inputs))
        models.append(compiled(keras.Model(inputs, keras.layers.Dense(1, name=f"head{number}")(hidden))))
    fit(models[1])
    callback = MixedPrecision(initial_scale=4096.0)  # no other test's: callbacks of equal settings share a session
    for model in models:
        assert converted(model, callback)["shared"] == "float16"
    undone = callback.session.undo()
    assert undone["retrofit"] and undone["loss_scale"] and undone["float32_islands"]
    for model in models:
        assert set(dtypes(model).values()) == {"float32"} and type(model.optimizer).__name__ == "Adam"
        fit(model)
        assert not bridge_for(model).train_graph(model).count("MatMul", "float16")


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8)
        self.blocks = [keras.layers.Dense(8) for _ in range(2)]
        self.head = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


@pytest.mark.parametrize("state", ["new", "built", "trained"])
def test_a_subclassed_model(state: str) -> None:
    model = Subclassed()
    if state == "built":
        model(X)
    compiled(model)
    if state == "trained":
        fit(model)
    found = converted(model, MixedPrecision())
    assert sorted(found.values()) == ["float16", "float16", "float16", "float32"]


@pytest.mark.parametrize("frozen", ["a", "all but head"])
def test_frozen_layers_compute_in_float16_too(frozen: str) -> None:
    model = made()
    for layer in model.layers[:1] if frozen == "a" else model.layers[:-1]:
        layer.trainable = False
    assert converted(compiled(model), MixedPrecision())["a"] == "float16"


def test_a_model_of_another_mixed_policy() -> None:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    assert converted(compiled(made()), MixedPrecision()) == {"a": "float16", "b": "float16", "head": "float32"}


@pytest.mark.parametrize("policy, dtype", [("mixed_bfloat16", "bfloat16"), ("float32", "float32")])
def test_the_other_policies_convert_without_a_loss_scale(policy: str, dtype: str) -> None:
    model = compiled(made())
    callback = MixedPrecision(policy)
    fit(model, callback)
    assert dtypes(model)["a"] == dtype and outcome(callback).status is Status.APPLIED
    assert type(model.optimizer).__name__ == "Adam" and "loss_scale" not in callback.session.endings


def test_an_eager_model_is_converted_and_its_loss_scale_is_seen_at_work() -> None:
    model = compiled(made(), run_eagerly=True, jit_compile=False)
    callback = MixedPrecision(initial_scale=1024.0)
    fit(model, callback)
    assert {outcome(callback).status, outcome(callback, "loss_scale").status} == {Status.APPLIED}
    assert outcome(callback, "loss_scale").observed["good_steps"] >= 1


def test_models_are_not_kept_alive() -> None:
    """Cross-validation makes a model for each fold, under one config."""
    callback, gone = MixedPrecision(), []
    for _ in range(3):
        model = compiled(made())
        fit(model, callback)
        gone.append(weakref.ref(model))
    del model
    keras.backend.clear_session()
    gc.collect()
    assert [reference() is None for reference in gone] == [True, True, False]


@pytest.mark.skipif(os.environ.get("TF_USE_LEGACY_KERAS") is None or KERAS3, reason="one process with two Keras")
def test_models_of_both_keras_in_one_process() -> None:
    """A callback serves the Keras of the model that it is given, and undoes in each what it did in each."""
    import keras as keras3
    import tf_keras

    callback, models = MixedPrecision(initial_scale=8192.0), []
    for package in (keras3, tf_keras, keras3):
        dense = package.layers.Dense
        model = package.Sequential([package.layers.Input((8,)), dense(8, name="a"), dense(8), dense(1)])
        fit(compiled_by(package, model), callback)
        models.append(model)
        assert outcome(callback).status is Status.APPLIED
    callback.session.undo()
    assert [type(model.optimizer).__name__ for model in models] == ["Adam"] * 3
    assert {dtype for model in models for dtype in dtypes(model).values()} == {"float32"}


def compiled_by(package: Any, model: Any) -> Any:
    model.compile(package.optimizers.Adam(0.01), package.losses.MeanSquaredError(), jit_compile=False)
    return model
