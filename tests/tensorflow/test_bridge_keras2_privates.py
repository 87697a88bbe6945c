"""Each private part of Keras 2 that the bridge uses; a test fails when Keras changes it, before a training does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models

L = keras.layers
BRIDGE = models.bridge()
PACKAGE = BRIDGE.package


def dense() -> Any:
    """A built layer."""
    layer = L.Dense(2)
    layer(np.ones((1, 3), "float32"))
    return layer


def test_policies_of_layers() -> None:
    layer = dense()
    layer._set_dtype_policy("mixed_float16")
    assert layer.dtype_policy.name == "mixed_float16"
    assert layer._compute_dtype_object == tf.float16
    assert layer._autocast is True
    assert keras.Sequential()._autocast is False


def test_autocast_variables() -> None:
    variable = tf.Variable(1.0)
    cast = PACKAGE.autocast.create_autocast_variable(variable)
    assert isinstance(cast, PACKAGE.autocast.AutoCastVariable)
    assert cast._variable is variable
    assert cast._unique_id == variable._unique_id  # what optimisers find slots by
    with PACKAGE.autocast.enable_auto_cast_variables(tf.float16):
        assert tf.identity(cast).dtype == tf.float16
    assert tf.identity(cast).dtype == tf.float32


def test_books_and_trees_of_layers() -> None:
    model = models.nested()
    assert len(dense()._trainable_weights) == 2
    assert dense()._non_trainable_weights == []
    direct = list(model._flatten_layers(recursive=False, include_self=False))
    assert direct == list(model.layers)
    assert list(model._flatten_modules(recursive=False, include_self=False)) == direct
    assert not any(isinstance(layer, keras.metrics.Metric) for layer in model._flatten_layers())


def test_tracking_wrappers_of_containers() -> None:
    layer = L.Layer()
    layer.listed, layer.named, layer.fixed = [tf.Variable(1.0)], {"a": tf.Variable(1.0)}, (tf.Variable(1.0),)
    assert layer.listed._storage[0] is layer.listed[0]
    assert layer.named.__wrapped__["a"] is layer.named["a"]
    assert layer.fixed.__wrapped__[0] is layer.fixed[0]
    for wrapper in (layer.listed, layer.named):
        wrapper._update_snapshot()


def test_call_specs_and_symbolic_history() -> None:
    layer = dense()
    arguments, keywords = layer._get_save_spec(dynamic_batch=False, inputs_only=False)
    assert (arguments[0].shape, keywords) == ((1, 3), {})
    assert L.Dense(2)._saved_model_inputs_spec is None
    assert L.Dropout(0.5)._expects_training_arg
    model = models.functional()
    last, index, _ = model.outputs[0]._keras_history
    assert last.name == "head"
    assert len(last._inbound_nodes[index].keras_inputs) == 1
    layer._clear_losses()


def test_random_state() -> None:
    assert hasattr(L.Dropout(0.5)._random_generator, "_seed")
    keras.utils.set_random_seed(1)
    assert PACKAGE.backend._SEED_GENERATOR.generator.getstate()


def test_classes_with_variables_that_never_autocast_are_those_in_the_skip_list() -> None:
    from tfvolta.bridge.keras2_conversion import OWN_CASTING

    found = set()
    for name in dir(L):
        cls = getattr(L, name)
        if inspect.isclass(cls) and issubclass(cls, PACKAGE.layer):
            for base in cls.__mro__:
                if base is PACKAGE.layer:
                    break
                source = inspect.getsource(base) if base.__module__.startswith(PACKAGE.root) else ""
                if "experimental_autocast=False" in source:
                    found.add(name)
    bases = {name for name in found if any(base.__name__ in OWN_CASTING for base in getattr(L, name).__mro__)}
    assert found
    assert found == bases


def test_layers_made_of_tensorflow_calls() -> None:
    from tfvolta.bridge.keras2_layers import OPERATION_LAYERS

    x = keras.Input((4,))
    made = {type((value)._keras_history.layer).__name__ for value in (tf.nn.relu(x), x[:, :1], x + 1.0)}
    assert made <= OPERATION_LAYERS


@pytest.mark.parametrize("kind", ["new", "legacy"])
def test_loss_scale_wrappers(kind: str) -> None:
    made = keras.optimizers.Adam() if kind == "new" else keras.optimizers.legacy.Adam()
    optimizer = PACKAGE.scaler(made, initial_scale=8.0, dynamic_growth_steps=3)
    assert isinstance(optimizer, PACKAGE.scaler)
    assert made._is_wrapped_by_loss_scale_optimizer
    state = optimizer._loss_scale
    assert (state._growth_steps, state._initial_loss_scale) == (3, 8.0)
    assert float(state.current_loss_scale) == 8.0
    assert "loss_scale" in made._unconditional_dependency_names
    assert {reference.name for reference in made._unconditional_checkpoint_dependencies} >= {"loss_scale"}
    assert callable(optimizer._apply_gradients)
    fixed = PACKAGE.scaler(keras.optimizers.SGD(), dynamic=False, initial_scale=4.0)
    assert fixed._loss_scale == 4.0


def test_a_skipped_step_advances_iterations_and_is_not_applied() -> None:
    variable = tf.Variable([1.0])
    optimizer = PACKAGE.scaler(keras.optimizers.SGD(1.0))
    applied: list[int] = []
    optimizer.__dict__["_apply_gradients"] = lambda *args: applied.append(1)
    optimizer.apply_gradients([(tf.constant([float("inf")]), variable)])
    assert (int(optimizer.iterations), applied) == (1, [])
    optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    assert applied == [1]


def test_compile_config_and_hdf5_mark(tmp_path: Any) -> None:
    model = models.compiled(models.sequential)
    assert "optimizer" in model._compile_config.config
    seen: list[bool] = []
    original = type(model.optimizer).get_config

    class Watched(type(model.optimizer)):  # type: ignore[misc]
        def get_config(self) -> Any:
            seen.append(bool(getattr(model, "use_legacy_config", False)))
            return original(self)

    model.optimizer.__class__ = Watched
    model.save(str(tmp_path / "m.h5"))
    assert seen
    assert all(seen)
    assert not getattr(model, "use_legacy_config", False)


def test_train_functions_and_counters() -> None:
    model = models.compiled(models.sequential)
    assert model.train_function is None
    assert model.train_tf_function is None
    models.train(model, epochs=1)
    assert model.train_tf_function is model.train_function
    assert model._steps_per_execution.numpy() == 1
    assert float(model.compiled_loss._total_loss_mean.count) == 64
    assert model._is_compiled
    assert list(inspect.signature(model.make_train_function).parameters) == ["force"]
    model.jit_compile = True
    assert model.train_function is None  # why set_jit makes the function anew inside a fit


def test_callback_list() -> None:
    cls = PACKAGE.callbacks.CallbackList
    parameters = list(inspect.signature(cls._call_batch_hook_helper).parameters)
    assert parameters == ["self", "hook_name", "batch", "logs"]
    made = cls([])
    assert made._hook_times == {}
    assert made._check_timing is False
    assert PACKAGE.training._get_verbosity(0, tf.distribute.get_strategy()) == 0
    assert PACKAGE.tf_utils.sync_to_numpy_or_python_type({"a": tf.constant(1.0)}) == {"a": 1.0}


def test_constructors_that_are_watched_and_kinds_of_rnn() -> None:
    for cls in (PACKAGE.layer, PACKAGE.model, PACKAGE.optimizer, PACKAGE.legacy_optimizer):
        assert "__init__" in vars(cls)
    assert {"compile", "fit"} <= set(vars(PACKAGE.model))
    assert L.LSTM(2)._could_use_gpu_kernel is True
    assert L.GRU(2, reset_after=False)._could_use_gpu_kernel is False


def test_scratch_graphs() -> None:
    graph = tf.__internal__.FuncGraph("scratch")
    with graph.as_default():
        tensor = tf.compat.v1.placeholder(tf.float32, (2,)) + 1.0
    assert [item.op.type for item in tensor.op.inputs] == ["Placeholder", "Const"]
