"""The private parts of TensorFlow and Keras that computing activations again rests on: fails first when they change."""

from __future__ import annotations

import inspect
from typing import Any

from tensorflow.python.eager import record
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import recompute_ops


def test_operations_of_functions_are_made_in_one_place() -> None:
    recompute_ops.install()
    made: list[str] = []

    @tf.function
    def function(value: Any) -> Any:
        watch = recompute_ops.Watch(tf.compat.v1.get_default_graph())
        with recompute_ops.during(watch):
            result = tf.matmul(value, value) + 1.0
        made.extend(operation.type for operation in watch.operations)
        return result

    function(tf.ones((2, 2)))
    assert [kind for kind in made if kind != "Const"] == ["MatMul", "AddV2"]
    assert list(inspect.signature(recompute_ops._own_create).parameters)[:3] == ["self", "op_type", "inputs"]
    assert callable(FuncGraph.capture) and op_def_registry.get("RandomUniform").is_stateful


def test_a_tape_takes_what_is_recorded_by_hand() -> None:
    with tf.GradientTape() as tape:
        source = tf.constant(2.0)
        tape.watch(source)
        assert record.could_possibly_record()
        with record.stop_recording():
            result = source * 3.0
        record.record_operation("Recomputed", [result], [source], lambda gradient: [gradient * 7.0])
    assert float(tape.gradient(result, source)) == 7.0
    variable = tf.Variable(1.0)
    with record.VariableWatcher() as watcher:
        variable.read_value()
    assert list(watcher.watched_variables()) == [variable]


def test_a_trace_knows_that_xla_compiles_it() -> None:
    seen: list[bool] = []

    def look(value: Any) -> Any:
        seen.append(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
        return value

    tf.function(look)(tf.ones(1))
    tf.function(look, jit_compile=True)(tf.ones(1))
    assert seen == [False, True]


def test_functional_models_run_their_graph_in_one_method() -> None:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    name = "_run_through_graph" if KERAS3 else "_run_internal_graph"
    called: list[bool] = []
    own = getattr(model, name)
    model.__dict__[name] = lambda *arguments, **keywords: called.append(True) or own(*arguments, **keywords)
    model(tf.ones((1, 2)))
    assert called == [True]
    node = model._nodes_by_depth[0][0]
    if KERAS3:
        assert node.operation is model.layers[-1] and callable(node.arguments.fill_in)
        assert model._get_operation_for_node(node) is node.operation and node.input_tensors and node.outputs
    else:
        assert node.layer is model.layers[-1] and callable(node.map_arguments)
        assert node.flat_input_ids == [str(id(inputs))] and len(node.flat_output_ids) == 1
        assert callable(model._flatten_to_reference_inputs) and callable(model._conform_to_reference_input)


def test_surroundings_of_a_call() -> None:
    seen: list[Any] = []

    class Look(keras.layers.Layer):
        def call(self, inputs: Any, training: Any = None) -> Any:
            if KERAS3:
                from keras.src.backend.common import global_state

                seen.append(global_state.get_global_attribute("current_call_ctx").training)
            else:
                from tfvolta.bridge.keras2_package import load_package

                context = load_package(STACK).private("engine.base_layer_utils").call_context()
                seen.append(context.in_call and isinstance(context._state, dict))
            return inputs

    layer = Look()
    layer(tf.ones((1, 2)), training=True)
    assert seen[-1] is True
    assert isinstance(layer._losses, list)
