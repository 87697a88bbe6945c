"""Loss scaling of Keras 2 models: installing, settings, and steps applied and skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tfvolta.bridge.base import LossScaleSettings, LossScaleState, StepCounts
from tfvolta.errors import BridgeError

L = keras.layers
BRIDGE = models.bridge()
SETTINGS = LossScaleSettings()


def tiny() -> Any:
    """One dense layer on images."""
    return keras.Sequential([L.Flatten(input_shape=(8, 8, 3)), L.Dense(models.CLASSES, activation="softmax")])


def optimizers() -> dict[str, Any]:
    """Makers of optimisers of both designs, and of TensorFlow Addons where it is installed."""
    found = {
        "new": lambda: keras.optimizers.Adam(1e-2),
        "legacy": lambda: keras.optimizers.legacy.SGD(1e-2, momentum=0.9),
    }
    if STACK == "keras2":
        import tensorflow_addons as tfa

        found["addons"] = lambda: tfa.optimizers.LAMB(1e-2)
    return found


def variables(optimizer: Any) -> list[Any]:
    """Values of an optimiser's variables."""
    held = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [variable.numpy() for variable in held]


@pytest.mark.parametrize("kind", optimizers())
def test_slots_and_iterations_are_kept_and_the_wrapper_fits(kind: str) -> None:
    model = models.compiled(tiny, optimizers()[kind]())
    models.train(model, epochs=1)
    inner, before = model.optimizer, variables(model.optimizer)
    assert BRIDGE.install_loss_scale(model, SETTINGS)
    assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
    assert model.optimizer.inner_optimizer is inner
    for first, second in zip(before, variables(inner)):
        np.testing.assert_array_equal(first, second)
    models.train(model, epochs=1)
    assert int(model.optimizer.iterations) == 8
    assert len(variables(inner)) == len(before)
    assert BRIDGE.train_graph(model).count("IsFinite") > 0
    assert not BRIDGE.install_loss_scale(model, SETTINGS)  # never nested
    assert model.optimizer.inner_optimizer is inner


@pytest.mark.parametrize("kind", optimizers())
def test_removing_and_installing_again(kind: str, tmp_path: Any) -> None:
    model = models.compiled(tiny, optimizers()[kind]())
    inner = model.optimizer
    BRIDGE.install_loss_scale(model, SETTINGS)
    models.train(model, epochs=1)
    assert BRIDGE.remove_loss_scale(model)
    assert model.optimizer is inner
    assert BRIDGE.loss_scale(model.optimizer) is None
    assert not BRIDGE.remove_loss_scale(model)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "c"))
    assert not [name for name, _ in tf.train.list_variables(path) if "loss_scale" in name]
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=64.0))
    models.train(model, epochs=1)
    assert int(model.optimizer.iterations) == 8
    state = BRIDGE.loss_scale(model.optimizer)
    assert (state.scale, state.dynamic, state.good_steps) == (64.0, False, None)


def test_an_existing_wrapper_gets_the_settings() -> None:
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    model = models.compiled(tiny, optimizer)
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(initial=256.0, growth_steps=3))
    assert model.optimizer is optimizer
    assert BRIDGE.loss_scale(optimizer).scale == 256.0
    models.train(model, epochs=1)  # four steps: the scale doubles after three
    assert BRIDGE.loss_scale(optimizer).scale == 512.0
    assert BRIDGE.loss_scale(optimizer).good_steps == 1
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial=2.0, growth_steps=3))
    assert BRIDGE.loss_scale(optimizer).scale == 512.0  # in use, so it is kept
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=16.0))
    assert not model.optimizer.dynamic
    models.train(model, epochs=1)
    assert int(model.optimizer.iterations) == 8


def test_scale_optimizer_takes_what_compile_takes() -> None:
    wrapped = BRIDGE.scale_optimizer("adam", LossScaleSettings(initial=4.0))
    assert BRIDGE.loss_scale(wrapped).scale == 4.0
    assert BRIDGE.scale_optimizer(wrapped, LossScaleSettings(initial=2.0)) is wrapped
    assert BRIDGE.loss_scale(wrapped).scale == 2.0
    fixed = BRIDGE.scale_optimizer(keras.optimizers.legacy.SGD(), LossScaleSettings(fixed=32.0))
    assert float(fixed.get_scaled_loss(tf.constant(2.0))) == 64.0


def test_clipping_decay_and_moving_average_act_on_unscaled_gradients() -> None:
    def step(wrap: bool, **arguments: Any) -> tuple[float, float]:
        variable = tf.Variable(10.0)
        optimizer = keras.optimizers.SGD(1.0, **arguments)
        optimizer.build([variable])
        optimizer = BRIDGE.scale_optimizer(optimizer, SETTINGS) if wrap else optimizer
        optimizer.minimize(lambda: 3.0 * variable, [variable])
        optimizer.finalize_variable_values([variable])
        return float(variable), float(optimizer.iterations)

    for arguments in ({"clipnorm": 1.0}, {"weight_decay": 0.1}, {"use_ema": True, "ema_momentum": 0.5}, {}):
        assert step(True, **arguments) == step(False, **arguments)
    assert step(True, clipnorm=1.0)[0] == 9.0


def poisoned(count: int) -> tuple[Any, Any]:
    """Eight batches of eight, of which every second one of the first ``2 * count`` overflows."""
    x = np.ones((64, 8, 8, 3), "float32")
    for index in range(count):
        x[16 * index : 16 * index + 8] = np.inf
    return x, models.LABELS


@pytest.mark.parametrize("kind", optimizers())
@pytest.mark.parametrize("steps", [1, 4])
def test_applied_and_skipped_steps_are_exact(kind: str, steps: int) -> None:
    model = models.compiled(tiny, optimizers()[kind](), steps_per_execution=steps)
    models.train(model, epochs=1)
    assert BRIDGE.step_counts(model) == StepCounts(applied=4, skipped=0)
    BRIDGE.install_loss_scale(model, SETTINGS)
    x, y = poisoned(3)
    model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    counts = BRIDGE.step_counts(model)
    assert (counts.applied, counts.skipped, counts.attempted) == (4 + 5, 3, 12)
    assert int(model.optimizer.iterations) == 12
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert BRIDGE.step_counts(model) == StepCounts(applied=4 + 15, skipped=9)
    assert all(np.isfinite(weights).all() for weights in model.get_weights())


def test_counts_under_a_strategy_and_under_xla() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = models.compiled(tiny)
    BRIDGE.install_loss_scale(model, SETTINGS)
    x, y = poisoned(3)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert BRIDGE.step_counts(model) == StepCounts(applied=5, skipped=3)
    model = models.compiled(tiny, jit_compile=True)
    BRIDGE.install_loss_scale(model, SETTINGS)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert BRIDGE.step_counts(model) == StepCounts(applied=5, skipped=3)
    assert BRIDGE.train_graph(model).must_compile


def test_four_overflows_are_four_attempts_and_no_step() -> None:
    model = models.compiled(tiny, keras.optimizers.SGD(1.0))
    BRIDGE.install_loss_scale(model, SETTINGS)
    x = np.full((32, 8, 8, 3), np.inf, "float32")
    model.fit(x, models.LABELS[:32], batch_size=8, verbose=0)
    counts = BRIDGE.step_counts(model)
    assert (counts.attempted, counts.applied, counts.skipped) == (4, 0, 4)


def test_counts_of_what_does_not_skip_and_of_what_is_not_counted() -> None:
    model = models.compiled(tiny, keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD()))
    models.train(model, epochs=1)
    assert BRIDGE.step_counts(model) == StepCounts(applied=4, skipped=None)
    fixed = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=2.0)
    model = models.compiled(tiny, fixed)
    models.train(model, epochs=1)
    assert BRIDGE.step_counts(model) == StepCounts(applied=4, skipped=0)
    assert BRIDGE.step_counts(models.functional()) is None


@pytest.mark.parametrize("kind", optimizers())
def test_a_fixed_scale_stays_skips_overflows_and_is_saved_as_keras_own(kind: str, tmp_path: Any) -> None:
    model = models.compiled(tiny, optimizers()[kind]())
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=0.5))
    x, y = poisoned(3)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert BRIDGE.step_counts(model) == StepCounts(applied=5, skipped=3)
    assert BRIDGE.loss_scale(model.optimizer) == LossScaleState(scale=0.5, dynamic=False)
    config = model.optimizer.get_config()
    assert (config["dynamic"], config["initial_scale"], config["dynamic_growth_steps"]) == (False, 0.5, None)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "c"))
    assert not [name for name, _ in tf.train.list_variables(path) if "scale" in name]
    assert not BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=0.5))
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=4.0))
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert BRIDGE.step_counts(model) == StepCounts(applied=10, skipped=6)
    assert float(model.optimizer.loss_scale) == 4.0


def test_restored_iterations_are_not_taken_for_skipped_steps(tmp_path: Any) -> None:
    model = models.compiled(tiny)
    models.train(model, epochs=2)
    model.save_weights(str(tmp_path / "w"))
    resumed = models.compiled(tiny)
    BRIDGE.install_loss_scale(resumed, SETTINGS)
    resumed.load_weights(str(tmp_path / "w"))
    models.train(resumed, epochs=1)
    assert BRIDGE.step_counts(resumed) == StepCounts(applied=12, skipped=0)


def test_counting_adds_nothing_to_checkpoints(tmp_path: Any) -> None:
    model = models.compiled(tiny)
    BRIDGE.install_loss_scale(model, SETTINGS)
    models.train(model, epochs=1)
    plain = models.compiled(tiny, keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-2)))
    models.train(plain, epochs=1)
    names = []
    for index, each in enumerate((model, plain)):
        path = tf.train.Checkpoint(model=each).save(str(tmp_path / str(index)))
        names.append({name for name, _ in tf.train.list_variables(path)})
    assert names[0] == names[1]


def test_a_model_without_an_optimizer_is_refused() -> None:
    with pytest.raises(BridgeError, match="optimiser"):
        BRIDGE.install_loss_scale(models.functional(), SETTINGS)
