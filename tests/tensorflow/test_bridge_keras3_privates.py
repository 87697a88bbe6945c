"""Keras 3: every private name that the bridge uses is there and does what the bridge relies on.

When Keras changes, the first failure is here and names what to look at.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

from keras.src import backend, tree
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.dtype_policies.dtype_policy_map import DTypePolicyMap
from keras.src.layers.preprocessing.data_layer import DataLayer
from keras.src.layers.preprocessing.index_lookup import IndexLookup
from keras.src.models.functional import Functional
from keras.src.saving.serialization_lib import SerializableDict
from keras.src.trainers.trainer import Trainer
from keras.src.utils import python_utils
from keras.src.utils.tracking import DotNotTrackScope

layers = keras.layers
MODEL_ATTRIBUTES = (
    "_layers",
    "_functional",
    "_build_shapes_dict",
    "_call_has_training_arg",
    "_compile_config",
    "_distribute_strategy",
    "_dtype_policy",
    "_loss_tracker",
    "train_function",
    "make_train_function",
    "make_test_function",
    "make_predict_function",
    "supports_jit",
    "autocast",
)
WRAPPER_ATTRIBUTES = (
    "_tf_apply",
    "_stateful_handle_finite_grads",
    "_stateful_handle_non_finite_grads",
    "check_finite",
    "initial_scale",
    "dynamic_growth_steps",
    "inner_optimizer",
    "_distribution_strategy",
)


def compiled() -> Any:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


@pytest.mark.parametrize("name", MODEL_ATTRIBUTES)
def test_model_attribute(name: str) -> None:
    assert hasattr(compiled(), name)


@pytest.mark.parametrize("name", WRAPPER_ATTRIBUTES)
def test_wrapper_attribute(name: str) -> None:
    assert hasattr(compiled().optimizer, name)


def test_the_wrapper_calls_what_the_guard_replaces() -> None:
    optimizer = compiled().optimizer
    called: list[str] = []
    optimizer.__dict__["_tf_apply"] = lambda grads, variables=None: called.append("apply")
    variable = keras.Variable([1.0])
    optimizer.apply([tf.constant([1.0])], [variable])
    assert called == ["apply"] and optimizer.built
    assert {"step_counter", "dynamic_scale"} <= set(vars(optimizer))
    assert list(inspect.signature(type(optimizer)._tf_apply).parameters) == ["self", "grads", "trainable_variables"]
    assert keras.optimizers.SGD().loss_scale_factor is None
    assert hasattr(optimizer.inner_optimizer, "_trainable_variables")


def test_growth_steps_of_zero_never_grow() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 8.0, dynamic_growth_steps=0)
    variable = keras.Variable([1.0])
    for _ in range(3):
        optimizer.apply([tf.constant([1.0])], [variable])
    assert float(optimizer.dynamic_scale.numpy()) == 8.0 and int(optimizer.step_counter.numpy()) == 3


def test_compile_and_fit_sit_where_they_are_patched() -> None:
    assert "compile" in Trainer.__dict__ and "fit" in TensorFlowTrainer.__dict__
    assert keras.Model.compile is Trainer.compile and keras.Model.fit is TensorFlowTrainer.fit
    assert "__new__" in keras.Layer.__dict__ and "__init__" in TFOptimizer.__dict__
    assert next(iter(inspect.signature(keras.Model.fit).parameters)) == "self"
    assert issubclass(keras.optimizers.Adam, TFOptimizer)


def test_fit_keeps_its_epoch_iterator_in_the_local_that_is_read() -> None:
    found: list[Any] = []

    class Looks(keras.callbacks.Callback):
        def set_model(self, model: Any) -> None:
            super().set_model(model)
            from tfvolta.bridge import keras3_running_fit

            found.append((keras3_running_fit.batches(model), keras3_running_fit.input_spec(model)))

    model = compiled()
    model.fit({"x": np.zeros((8, 4), "float32")}["x"], np.zeros((8, 1)), batch_size=4, verbose=0, callbacks=[Looks()])
    batches, spec = found[0]
    assert batches == 2 and spec.shape == (None, 4) and spec.dtype == "float32"


def test_a_callback_list_is_taken_as_it_is_and_calls_the_hooks_that_are_overridden() -> None:
    class Counts(keras.callbacks.CallbackList):
        batches = 0

        def _on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            Counts.batches += 1
            assert tf.is_tensor(logs["loss"])  # raw: Keras has converted nothing yet

    model = compiled()
    counts = Counts([], add_history=True, model=model)  # fit returns model.history, which the list sets
    model.fit(np.zeros((8, 4)), np.zeros((8, 1)), batch_size=4, verbose=0, callbacks=counts)
    assert Counts.batches == 2
    for hook in ("_on_batch_end", "_on_train_batch_end", "_on_test_batch_end", "_on_predict_batch_end"):
        assert hasattr(keras.callbacks.CallbackList, hook)
    assert python_utils.pythonify_logs({"b": tf.constant(1.0), "a": {"c": 2}}) == {"b": 1.0, "c": 2.0}


def test_functional_graphs_hold_what_is_walked() -> None:
    inputs = keras.Input((4,))
    outputs = layers.Dense(1)(inputs)
    model = keras.Model(inputs, outputs)
    operation, node, tensor = model.outputs[0]._keras_history
    assert isinstance(model, Functional) and type(model).call is Functional.call and isinstance(operation, layers.Dense)
    assert operation._inbound_nodes[node].input_tensors[0] is inputs and tensor == 0
    assert model._inputs_struct is not None
    sequential = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    assert isinstance(sequential._functional, Functional) and sequential._functional not in sequential._layers


def test_scopes_policies_and_trackers() -> None:
    with backend.StatelessScope(collect_losses=False), SymbolicScope(), tf.__internal__.FuncGraph("x").as_default():
        pass
    with DotNotTrackScope():
        pass
    assert SerializableDict(a=1).config == {"a": 1}
    assert issubclass(layers.Rescaling, DataLayer) and issubclass(layers.StringLookup, IndexLookup)
    assert isinstance(keras.dtype_policies.DTypePolicyMap(), DTypePolicyMap)
    assert tree.map_shape_structure(lambda s: s, {"a": (1, 2)}) == {"a": (1, 2)}
    tracker = compiled()._loss_tracker
    assert hasattr(tracker, "count") and hasattr(tracker, "total")
