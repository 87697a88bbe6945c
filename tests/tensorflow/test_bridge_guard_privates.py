"""What of TensorFlow's insides the order of a step's writes relies on; a failure here means that they have changed."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import auto_control_deps, auto_control_deps_utils

from tests.stack import keras, tf
from tfvolta.bridge.late_writes import order_writes
from tfvolta.bridge.update_counter import UpdateCounter


def traced(function: Any) -> Any:
    return tf.function(function).get_concrete_function().graph


def test_operations_take_control_inputs_and_name_what_comes_after_them() -> None:
    with tf.Graph().as_default():
        first, second = tf.constant(1.0).op, tf.constant(2.0).op
        second._add_control_input(first)
        assert list(second.control_inputs) == [first] and first._control_outputs == [second]


def test_reads_of_variables_are_known_as_such() -> None:
    assert {"ReadVariableOp", "ResourceGather"} <= auto_control_deps_utils.RESOURCE_READ_OPS
    assert "AssignVariableOp" not in auto_control_deps_utils.RESOURCE_READ_OPS
    with tf.Graph().as_default():
        assert auto_control_deps.op_is_stateful(tf.raw_ops.Print(input=tf.constant(1.0), data=[]).op)
        assert not auto_control_deps.op_is_stateful(tf.constant(1.0).op)


def test_calls_of_functions_note_what_they_only_read() -> None:
    read, written = tf.Variable(1.0), tf.Variable(1.0)
    inner = tf.function(lambda: written.assign_add(read))
    graph = traced(lambda: inner())
    call = next(each for each in graph.get_operations() if "PartitionedCall" in each.type)
    places = call.get_attr(auto_control_deps_utils.READ_ONLY_RESOURCE_INPUTS_ATTR)
    outside = {id(inner): outer for outer, inner in graph.captures}
    assert [id(outside[id(call.inputs[place])]) for place in places] == [id(read.handle)]


def test_a_write_waits_for_all_that_is_computed() -> None:
    weight, count, counter = tf.Variable(1.0), tf.Variable(0), UpdateCounter()

    def step() -> Any:
        count.assign_add(1)
        loss = tf.square(weight * 3.0, name="loss")
        weight.assign_sub(0.1 * loss)
        operations = tf.compat.v1.get_default_graph().get_operations()
        order_writes(operations, {id(weight.handle), id(count.handle)}, counter.begun, counter.ended)
        return loss

    graph = traced(step)
    counts = next(each for each in graph.get_operations() if each.type == "AssignAddVariableOp")
    found, waiting = set(), [counts]
    while waiting:
        for each in [*waiting[0].control_inputs, *(part.op for part in waiting[0].inputs)]:
            found.add(each.name)
            waiting.append(each)
        waiting.pop(0)
    assert "loss" in found


def test_keras_calls_the_train_step_that_is_on_the_instance() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    original, calls = model.train_step, []
    model.__dict__["train_step"] = lambda data: calls.append(1) or original(data)
    model.fit(tf.ones((2, 1)), tf.ones((2, 1)), verbose=0)
    assert calls
