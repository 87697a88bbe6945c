"""The private parts of TensorFlow and Keras from which the figures of layers are read."""

from __future__ import annotations

from typing import Any

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge.compiled_memory import STAGE
from tfvolta.bridge.layer_calls import function_graph
from tfvolta.footprint.buffer_assignment import buffers_of


def test_a_graph_knows_the_functions_that_it_calls() -> None:
    @tf.function
    def double(x: Any) -> Any:
        return x * 2.0

    traced = double.get_concrete_function(tf.TensorSpec([None, 3], tf.float32))
    graph = tf.__internal__.FuncGraph("caller")
    with graph.as_default():
        traced(tf.compat.v1.placeholder(tf.float32, [4, 3]))
    (call,) = [each for each in graph.get_operations() if "PartitionedCall" in each.type]
    function = graph._get_function(call.node_def.attr["f"].func.name)
    assert function.graph.outputs[0].shape.as_list() == [None, 3]
    assert function.cached_definition.signature.input_arg
    exact = function_graph(graph, call.node_def.attr["f"].func.name, call)
    assert exact.outputs[0].shape.as_list() == [4, 3]
    assert exact.tfvolta_original is function.graph


def test_a_layer_lists_the_variables_that_it_holds_itself() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
    layer = model.layers[-1]
    names = ("_trainable_variables", "_non_trainable_variables") if KERAS3 else (
        "_trainable_weights", "_non_trainable_weights",
    )  # fmt: skip
    assert [len(getattr(layer, name)) for name in names] == [2, 2]
    assert [len(getattr(model, name)) for name in names] == [0, 0]


def test_a_compiled_program_comes_with_its_buffers() -> None:
    @tf.function(jit_compile=True)
    def product(x: Any) -> Any:
        return tf.linalg.matmul(x, x)

    program = product.experimental_get_compiler_ir(tf.TensorSpec([64, 64], tf.float32))(stage=STAGE)
    found = buffers_of(program)
    assert (found.parameters, found.results) == (4 * 64 * 64, 4 * 64 * 64)


def test_an_iterator_of_a_strategy_knows_it_and_what_it_gives() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    iterator = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4)))
    assert iterator._strategy is strategy
    assert iterator.element_spec.dtype == tf.int64
    assert not hasattr(iter(tf.data.Dataset.range(8)), "_strategy")


def test_a_traced_function_names_its_results_and_effects() -> None:
    counter = tf.Variable(0.0)

    @tf.function
    def step(x: Any) -> Any:
        counter.assign_add(1.0)
        return x * 2.0

    graph = step.get_concrete_function(tf.TensorSpec([3], tf.float32)).graph
    assert len(graph.outputs) == 1
    assert any(operation.type == "AssignAddVariableOp" for operation in graph.control_outputs)
