"""Keras 3: loss scaling put around any optimiser gives the weights that Keras's own mixed_float16 gives."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings, LossScaleState, StepCounts
from tfvolta.errors import BridgeError

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

layers = keras.layers
optimizers = keras.optimizers
BRIDGE = bridge_for_stack(STACK)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: optimizers.Adam(0.01),
    "global_clipnorm": lambda: optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5),
    "weight_decay_ema": lambda: optimizers.AdamW(0.01, weight_decay=0.01, use_ema=True, ema_overwrite_frequency=3),
    "accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "clipnorm": lambda: optimizers.RMSprop(0.01, clipnorm=0.5),
    "loss_scale_factor": lambda: optimizers.Adam(0.01, loss_scale_factor=128.0),
    "wrapped": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01)),
}


def cnn(policy: str = "float32") -> Any:
    """The same weights each time; the output layer is float32 as after a retrofit."""
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(policy)
    try:
        inputs = keras.Input((6, 6, 2))
        x = layers.BatchNormalization()(layers.Conv2D(4, 3)(inputs))
        x = layers.Flatten()(layers.ReLU()(x))
        return keras.Model(inputs, layers.Dense(3, activation="softmax", dtype="float32")(x))
    finally:
        keras.config.set_dtype_policy("float32")


def data(bad_batch: Optional[int] = None) -> tuple[Any, Any]:
    """Four batches of 16, one of them infinite on request."""
    x = np.random.RandomState(0).randn(64, 6, 6, 2).astype("float32")
    y = x.sum((1, 2)).argmax(-1).astype("int32")
    if bad_batch is not None:
        x[16 * bad_batch : 16 * bad_batch + 16] = np.inf
    return x, y


def fit(model: Any, bad_batch: Optional[int] = None, epochs: int = 2) -> Any:
    x, y = data(bad_batch)
    return model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, shuffle=False).history["loss"]


def retrofitted(optimizer: Any, settings: Optional[LossScaleSettings] = None, **compiled: Any) -> Any:
    model = cnn()
    model.compile(optimizer, "sparse_categorical_crossentropy", **compiled)
    BRIDGE.retrofit(model, "mixed_float16")
    BRIDGE.install_loss_scale(model, settings or LossScaleSettings())
    return model


def assert_same(a: Any, b: Any) -> None:
    for left, right in zip(a.get_weights(), b.get_weights()):
        np.testing.assert_array_equal(left, right)
    assert len(a.optimizer.variables) == len(b.optimizer.variables)
    for left, right in zip(a.optimizer.variables, b.optimizer.variables):
        np.testing.assert_array_equal(left.numpy(), right.numpy())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_and_slots_equal_those_of_a_model_built_under_mixed_float16(name: str) -> None:
    native = cnn("mixed_float16")
    native.compile(OPTIMIZERS[name](), "sparse_categorical_crossentropy")
    model = retrofitted(OPTIMIZERS[name]())
    assert type(model.optimizer) is optimizers.LossScaleOptimizer
    assert not isinstance(model.optimizer.inner_optimizer, optimizers.LossScaleOptimizer)
    loss = fit(model)
    assert loss == fit(native) and loss[-1] < loss[0]
    assert_same(model, native)


def test_a_trained_optimiser_keeps_slots_and_iterations() -> None:
    model = cnn()
    model.compile(optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    fit(model)
    inner, before = model.optimizer, [v.numpy() for v in model.optimizer.variables]
    BRIDGE.retrofit(model, "mixed_float16")
    assert BRIDGE.install_loss_scale(model, LossScaleSettings()) is True
    assert model.optimizer.inner_optimizer is inner and len(inner.variables) == len(before)
    for value, variable in zip(before, inner.variables):
        np.testing.assert_array_equal(value, variable.numpy())
    fit(model, epochs=1)
    assert BRIDGE.step_counts(model) == StepCounts(applied=12, skipped=0)
    assert BRIDGE.install_loss_scale(model, LossScaleSettings()) is False and BRIDGE.is_traced(model)
    assert BRIDGE.remove_loss_scale(model) is True and model.optimizer is inner
    assert BRIDGE.remove_loss_scale(model) is False


def test_an_optimiser_that_builds_twice_keeps_its_slots() -> None:
    class Careless(optimizers.SGD):
        def build(self, variables: Any) -> None:
            self.built = False
            super().build(variables)

    model = cnn()
    model.compile(Careless(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    fit(model, epochs=1)
    momentum = [v.numpy() for v in model.optimizer.momentums]
    BRIDGE.install_loss_scale(model, LossScaleSettings())
    for value, variable in zip(momentum, model.optimizer.inner_optimizer.momentums):
        np.testing.assert_array_equal(value, variable.numpy())
    assert any(np.abs(value).max() > 0 for value in momentum)


@pytest.mark.parametrize("steps_per_execution", [1, 4])
@pytest.mark.parametrize("jit", [False, True])
def test_skipped_steps_are_counted_exactly(steps_per_execution: int, jit: bool) -> None:
    model = retrofitted(
        "adam", LossScaleSettings(initial=1024.0), steps_per_execution=steps_per_execution, jit_compile=jit
    )
    fit(model, bad_batch=1)
    assert BRIDGE.step_counts(model) == StepCounts(applied=6, skipped=2)
    assert BRIDGE.step_counts(model).attempted == 8
    assert BRIDGE.loss_scale(model.optimizer) == LossScaleState(256.0, dynamic=True, good_steps=2)
    assert BRIDGE.train_graph(model).must_compile is jit
    assert all(np.isfinite(v.numpy()).all() for v in model.trainable_variables)


def test_growth_and_a_fixed_scale() -> None:
    model = retrofitted("adam", LossScaleSettings(initial=8.0, growth_steps=2))
    fit(model)
    assert BRIDGE.loss_scale(model.optimizer) == LossScaleState(128.0, dynamic=True, good_steps=0)
    fixed = retrofitted("adam", LossScaleSettings(fixed=256.0))
    fit(fixed, bad_batch=1)
    assert BRIDGE.loss_scale(fixed.optimizer) == LossScaleState(256.0, dynamic=False, good_steps=None)
    assert BRIDGE.step_counts(fixed) == StepCounts(applied=6, skipped=2)
    assert all(np.isfinite(v.numpy()).all() for v in fixed.trainable_variables)


def test_a_fixed_scale_scales_the_loss_and_unscales_the_gradients() -> None:
    """With powers of two scaling is exact in float32, so the weights are those of no scaling at all."""
    plain, scaled = cnn(), cnn()
    for model in (plain, scaled):
        model.compile(optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    BRIDGE.install_loss_scale(scaled, LossScaleSettings(fixed=64.0))
    assert float(scaled.optimizer.scale_loss(np.float32(2.0))) == 128.0
    fit(plain)
    fit(scaled)
    for left, right in zip(plain.get_weights(), scaled.get_weights()):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_settings_of_an_existing_wrapper_change_and_a_trained_scale_stays() -> None:
    model = cnn("mixed_float16")
    model.compile("adam", "sparse_categorical_crossentropy")  # Keras wraps on its own
    wrapper = model.optimizer
    fit(model, bad_batch=0)
    scale = BRIDGE.loss_scale(wrapper).scale
    assert scale == 8192.0 and BRIDGE.step_counts(model).skipped is None
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(initial=1024.0, growth_steps=5)) is True
    assert model.optimizer is wrapper and wrapper.dynamic_growth_steps == 5
    assert BRIDGE.loss_scale(wrapper).scale == scale
    BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=64.0))
    assert BRIDGE.loss_scale(wrapper) == LossScaleState(64.0, dynamic=False)
    fit(model, bad_batch=0, epochs=1)
    assert BRIDGE.step_counts(model).skipped == 1


def test_optimisers_without_a_wrapper_and_models_without_an_optimiser() -> None:
    assert BRIDGE.loss_scale(optimizers.Adam()) is None
    assert BRIDGE.loss_scale(optimizers.Adam(loss_scale_factor=4.0)) == LossScaleState(4.0, dynamic=False)
    restored = optimizers.Adam(loss_scale_factor=4.0)
    model = cnn()
    with pytest.raises(BridgeError, match=r"model\.compile"):
        BRIDGE.install_loss_scale(model, LossScaleSettings())
    model.compile(restored, "sparse_categorical_crossentropy")
    assert BRIDGE.step_counts(model) == StepCounts(0, 0)
    BRIDGE.install_loss_scale(model, LossScaleSettings())
    assert restored.loss_scale_factor is None
    BRIDGE.remove_loss_scale(model)
    assert model.optimizer is restored and restored.loss_scale_factor == 4.0
    assert isinstance(BRIDGE.scale_optimizer("sgd", LossScaleSettings()), optimizers.LossScaleOptimizer)
