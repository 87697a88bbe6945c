"""What the bridge uses of TensorFlow and Keras for parameter servers, without a cluster; first to fail on a change."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack, remote_call, served_variables
from tfvolta.bridge.coordinated_data import why_not_remote
from tfvolta.bridge.coordinator import Coordinator, explaining

needs_keras3 = pytest.mark.skipif(not KERAS3, reason="Keras 3")
needs_keras2 = pytest.mark.skipif(KERAS3, reason="Keras 2")


def sharded(values: Any, name: str = "table") -> Any:
    """A sharded variable whose two shards lie here."""
    half = len(values) // 2
    parts = [tf.Variable(part, name=f"{name}/part_{i}") for i, part in enumerate((values[:half], values[half:]))]
    return tf.__internal__.distribute.ShardedVariable(parts)


def test_a_function_is_called_by_name_through_an_operation() -> None:
    heard = []
    answering = remote_call.Answering("tfvolta.test", lambda text: heard.append(text) or f"{text}!")  # type: ignore[func-returns-value]
    try:
        assert remote_call.call("/device:CPU:0", "tfvolta.test", "täxt") == "täxt!"
    finally:
        answering.close()
    assert heard == ["täxt"]
    with pytest.raises(tf.errors.OpError):
        remote_call.call("/device:CPU:0", "tfvolta.test", "nobody")


def test_the_coordinators_queue_is_as_the_bridge_knows_it() -> None:
    from tensorflow.python.distribute.coordinator import cluster_coordinator

    queue = cluster_coordinator._CoordinatedClosureQueue()
    try:
        assert isinstance(queue._stop_waiting_condition, threading.Condition)
        assert queue._error is None
        with queue._queue_lock:
            queue._error = ValueError("mine")
            queue._stop_waiting_condition.notify_all()
        with pytest.raises(ValueError, match="mine"):
            queue.done()
    finally:
        queue.stop()
    assert "closure_queue" in inspect.getsource(cluster_coordinator.Cluster.__init__)
    made = inspect.getsource(cluster_coordinator.ClusterCoordinator.__new__)
    assert "strategy._cluster_coordinator" in made  # where Keras 2 finds the coordinator that the bridge made
    assert "_has_initialized" in inspect.getsource(cluster_coordinator.ClusterCoordinator.__init__)
    assert issubclass(Coordinator, cluster_coordinator.ClusterCoordinator)


def test_a_server_takes_the_settings_of_the_eager_context() -> None:
    from tensorflow.python.eager import context

    proto = context.context().config
    assert isinstance(proto, tf.compat.v1.ConfigProto)
    assert hasattr(proto.gpu_options, "allow_growth")
    assert proto.device_count["CPU"] >= 1 and "GPU" in proto.device_count  # none is made of a kind that counts zero


def test_errors_of_other_strategies_stay_as_they_are() -> None:
    class Model:
        distribute_strategy = tf.distribute.get_strategy()

        @explaining
        def fit(self) -> None:
            raise tf.errors.UnavailableError(None, None, "remote target /job:ps/replica:0/task:0")

    with pytest.raises(tf.errors.UnavailableError):
        Model().fit()


def test_parts_are_counted_for_the_variable_that_they_are_parts_of() -> None:
    table, bias = sharded(np.zeros((10, 3), "float32")), tf.Variable([1.0, 2.0], name="bias")
    shards = list(table.variables)
    assert served_variables.whole(shards[1]) is table
    assert served_variables.whole(bias) is bias
    for listed in ([table, bias], [*shards, bias]):
        parts = served_variables.served_parts(listed)
        assert list(parts) == ["table", "bias"]
        assert [(part.rows, part.size_bytes) for part in parts["table"]] == [(5, 60), (5, 60)]
        assert parts["bias"][0].device.endswith("CPU:0")


def test_data_that_run_python_stay_here() -> None:
    plain = tf.data.Dataset.range(4).map(lambda x: x + 1).batch(2).repeat()
    assert why_not_remote(plain) is None
    assert "Python function" in str(why_not_remote(plain.map(lambda x: tf.py_function(lambda y: y, [x], tf.int64))))
    generated = tf.data.Dataset.from_generator(lambda: [1, 2], output_signature=tf.TensorSpec((), tf.int32))
    assert "Python function" in str(why_not_remote(generated))


@needs_keras3
def test_keras3_fit_is_as_the_bridge_knows_it() -> None:
    from keras.src.backend.tensorflow import trainer
    from keras.src.trainers.epoch_iterator import EpochIterator

    fit, evaluate = (inspect.getsource(getattr(trainer.TensorFlowTrainer, name)) for name in ("fit", "evaluate"))
    made = [text.split(")")[0] for text in fit.split("TFEpochIterator(")[1:]]
    assert ["class_weight" in arguments for arguments in made] == [True, False]  # training, then validation
    assert "class_weight" not in evaluate
    for source in (fit, evaluate):
        assert "_maybe_symbolic_build(iterator=epoch_iterator)" in source
        assert "_get_metrics_result_or_logs(logs)" in source
    for name in ("steps_per_execution", "steps_per_epoch", "data_adapter", "_num_batches", "_steps_seen"):
        assert name in inspect.getsource(EpochIterator)
    assert {"_enumerate_iterator", "_get_iterator", "catch_stop_iteration"} <= set(vars(EpochIterator))


@needs_keras3
def test_keras3_variables_are_as_the_bridge_knows_them() -> None:
    from keras.src import backend
    from keras.src.backend.tensorflow import core
    from keras.src.backend.tensorflow import numpy as keras_numpy
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    from tfvolta.bridge import keras3_served

    keras3_served.install()
    assert issubclass(keras3_served.Sharded, backend.Variable) and issubclass(backend.Variable, core.Variable)
    variable = keras.Variable(np.arange(6.0, dtype="float32").reshape(3, 2))
    assert type(variable) is backend.Variable  # nothing changes without parameter servers
    assert list(inspect.signature(keras3_served._own_take).parameters) == ["x", "indices", "axis"]
    assert keras_numpy.take is keras3_served._take
    assert np.allclose(keras.ops.take(variable, [[0, -1]], axis=0), [[[0.0, 1.0], [4.0, 5.0]]])
    assert list(inspect.signature(TFOptimizer.add_variable_from_reference).parameters)[1:] == [
        "reference_variable",
        "name",
        "initializer",
    ]


def shard_first_variable(model: Any) -> Any:
    """Puts a model's first weight into shards, as a strategy would when it was made."""
    from tfvolta.bridge.keras3_served import Sharded

    variable = model.trainable_variables[0]
    value = sharded(np.asarray(variable))
    variable.__class__ = Sharded
    variable._value = value
    return variable


@needs_keras3
@pytest.mark.parametrize("name", ("SGD", "Adam", "RMSprop", "Adagrad", "Lion"))
def test_keras3_trains_shards_in_the_place_of_their_variable(name: str) -> None:
    """A step traced with shards comes to the same weights; what is looked up, read and saved is in one piece."""
    from tfvolta.bridge import keras3_served
    from tfvolta.bridge.keras3_shard_step import refuse, shards_stand_in

    keras3_served.install()
    ids, targets = np.array([[0, 5], [9, 5]]), np.ones((2, 1), "float32")

    def make() -> Any:
        keras.utils.set_random_seed(1)
        layers = [keras.Input((2,), dtype="int32"), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(getattr(keras.optimizers, name)(0.1, weight_decay=0.01), "mse")
        return model

    whole_model, model = make(), make()
    table = shard_first_variable(model)
    refuse(model)
    model.optimizer.build(model.trainable_variables)
    slots = [slot for slot in model.optimizer.variables if isinstance(slot, keras3_served.Sharded)]
    assert all(len(slot.shards) == 2 for slot in slots)
    assert bool(slots) is (name != "SGD")

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        with shards_stand_in(model):
            assert len(model.trainable_variables) == len(whole_model.trainable_variables) + 1
            return model.train_step((ids, targets))

    for _ in range(3):
        step()
        whole_model.train_on_batch(ids, targets)
    assert model.trainable_variables[0] is table  # outside of the trace nothing is replaced
    for ours, theirs in zip(model.get_weights(), whole_model.get_weights()):
        assert np.allclose(ours, theirs, atol=1e-6)
    assert np.allclose(model(ids), whole_model(ids), atol=1e-6)
    graph = step.get_concrete_function().graph
    assert sum(operation.type == "ResourceGather" for operation in graph.get_operations()) == 2


@needs_keras3
def test_keras3_metrics_add_up_on_the_server() -> None:
    from tfvolta.bridge import keras3_lone_metrics

    class Largest(keras.metrics.Metric):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.largest = self.add_variable((), "zeros", name="largest")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

        def result(self) -> Any:
            return self.largest

    def make(extra: list[Any]) -> Any:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc"), "accuracy", *extra])
        return model

    x, y = np.random.RandomState(0).randn(64, 3).astype("float32"), np.random.RandomState(1).randint(0, 2, (64, 1))
    plain, isolated = make([]), make([])
    isolated.set_weights(plain.get_weights())
    isolated.evaluate(x, y, verbose=0)  # makes the metrics' variables
    assert keras3_lone_metrics.isolate(isolated)
    expected = plain.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    isolated.make_test_function(force=True)
    found = isolated.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-5)
    other = make([Largest()])
    other.evaluate(x, y, verbose=0)
    assert not keras3_lone_metrics.isolate(other)


@needs_keras2
def test_keras2_fit_is_as_the_bridge_knows_it() -> None:
    package = bridge_for_stack(STACK).package
    adapters = package.private("engine.data_adapter")
    for name in ("select_data_adapter", "TensorLikeDataAdapter", "train_validation_split", "unpack_x_y_sample_weight"):
        assert hasattr(adapters, name)
    parameters = inspect.signature(adapters.TensorLikeDataAdapter.__init__).parameters
    assert {"x", "y", "sample_weights", "batch_size", "epochs", "shuffle"} <= set(parameters)
    fit = inspect.signature(package.model.fit).parameters
    assert {"x", "y", "sample_weight", "batch_size", "shuffle", "steps_per_epoch", "validation_split"} <= set(fit)
    assert {"validation_data", "validation_steps", "validation_batch_size"} <= set(fit)
    source = inspect.getsource(package.model._infer_exact_eval_shards)
    assert "_num_workers" in source and '"auto"' in source
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model._pss_evaluation_shards == 0
    adapter = adapters.TensorLikeDataAdapter(np.zeros((5, 2)), np.zeros((5, 1)), batch_size=2, epochs=1)
    assert adapter.get_size() == 3


@needs_keras2
def test_keras2_saves_shards_as_one() -> None:
    from tfvolta.bridge import keras2_whole_layers

    package = bridge_for_stack(STACK).package

    class Layer:
        def __init__(self, variables: list[Any]) -> None:
            self._trainable_weights, self._non_trainable_weights = variables, []

        def _update_trackables(self) -> None:
            pass

        save_own_variables = package.layer.save_own_variables
        load_own_variables = package.layer.load_own_variables

    class Corrected(Layer):
        pass

    keras2_whole_layers._correct(Corrected, lambda layer: list(layer._trainable_weights))
    table, bias = sharded(np.arange(12.0).reshape(6, 2)), tf.Variable([1.0, 2.0], name="bias")
    slots = [tf.Variable(np.full((3, 2), float(i)), name=f"m/table/part_{i}") for i in range(2)]
    store: dict[str, Any] = {}
    Corrected([*table.variables, bias, *slots]).save_own_variables(store)
    assert [store[key].shape for key in sorted(store)] == [(6, 2), (2,), (6, 2)]
    assert np.array_equal(store["0"], np.arange(12.0).reshape(6, 2))
    fresh = sharded(np.zeros((6, 2)))
    Corrected([*fresh.variables, tf.Variable([0.0, 0.0], name="bias"), *slots]).load_own_variables(store)
    assert np.array_equal(fresh.numpy(), store["0"])
    plain: dict[str, Any] = {}
    Corrected([bias]).save_own_variables(plain)
    assert np.array_equal(plain["0"], [1.0, 2.0])
