"""Several replicas and workers: every private name that the bridge uses is there and does what the bridge relies on.

When Keras or TensorFlow changes, the first failure is here and names what to look at.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.stack import KERAS3, keras, tf
from tfvolta.bridge import all_reduce, runtime, workers

EXTENDED = (
    "_use_merge_call",
    "_replica_ctx_all_reduce",
    "_batch_reduce_to",
    "_communication_options",
    "_num_replicas_in_sync",
    "_in_multi_worker_mode",
    "_cross_device_ops",
    "should_checkpoint",
    "worker_devices",
)


@pytest.fixture(scope="module")
def strategy() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0"])


@pytest.mark.parametrize("name", EXTENDED)
def test_what_a_strategy_has(strategy: Any, name: str) -> None:
    assert hasattr(strategy.extended, name)
    assert hasattr(tf.distribute.MultiWorkerMirroredStrategy, "scope")


def test_how_a_strategy_reduces(strategy: Any) -> None:
    extended = strategy.extended
    assert list(inspect.signature(extended._replica_ctx_all_reduce).parameters) == ["reduce_op", "value", "options"]
    parameters = list(inspect.signature(extended._batch_reduce_to).parameters)
    assert parameters == ["reduce_op", "value_destination_pairs", "options"]
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=8)
    merged = extended._communication_options.merge(options)
    assert merged.bytes_per_pack == 8 and merged.implementation == extended._communication_options.implementation
    assert extended._communication_options.merge(None).bytes_per_pack == 0


def test_one_replica_needs_no_correction(strategy: Any) -> None:
    assert not all_reduce.install(strategy) and all_reduce.records_of(strategy) is None
    assert not all_reduce.install(tf.distribute.get_strategy())
    assert not workers.spans_workers(strategy) and not workers.spans_workers(tf.distribute.get_strategy())
    assert not workers.spans_workers(None)
    assert workers.is_chief(strategy) and not workers.can_compile_replicas(strategy)


def test_a_replica_knows_its_number(strategy: Any) -> None:
    seen = []

    def replica() -> None:
        seen.append(tf.distribute.get_replica_context()._replica_id)

    strategy.run(replica)
    assert seen == [0]


def test_where_tensorflow_starts_its_devices() -> None:
    from tensorflow.python.eager import context

    context_class = context.Context
    start = context_class.ensure_initialized
    assert list(inspect.signature(start).parameters) == ["self"]
    called: list[str] = []
    take_back = runtime.before_start(lambda: called.append("again"))
    assert context_class.ensure_initialized is not start
    take_back()
    assert context_class.ensure_initialized is start
    runtime.before_start(lambda: called.append("never"))
    tf.constant(1)  # started long ago: nothing is done, and the request is gone
    context.context().ensure_initialized()
    assert called == [] and context_class.ensure_initialized is start


if KERAS3:
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    from tfvolta.bridge import keras3_replicas, keras3_workers

keras3 = pytest.mark.skipif(not KERAS3, reason="the bridge to Keras 3")


@keras3
def test_what_an_optimizer_calls_in_which_order() -> None:
    """The sum is made in front of clipping because Keras makes it in ``_backend_update_step``, which comes after."""
    source = inspect.getsource(BaseOptimizer._backend_apply_gradients)
    assert 0 < source.rindex("_clip_gradients") < source.rindex("_backend_update_step")
    assert "_all_reduce_sum_gradients" in inspect.getsource(TFOptimizer._backend_update_step)
    assert "_overwrite_model_variables_with_average_value" in source
    assert "self._iterations.assign_add(1)" in inspect.getsource(BaseOptimizer.apply)


@keras3
def test_an_optimizer_is_corrected_on_the_instance_and_works_alone() -> None:
    optimizer = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1, clipnorm=1.0)
    wrapper = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0)
    assert keras3_replicas.install(wrapper) and not keras3_replicas.install(optimizer)
    assert keras3_replicas.is_installed(wrapper) and keras3_replicas.innermost(wrapper) is optimizer
    assert type(optimizer) is keras.optimizers.SGD and "_direct_assign" in optimizer._iterations.__dict__
    variable = keras.Variable([1.0])
    wrapper.apply([tf.constant([8.0])], [variable])
    assert float(variable.numpy()[0]) == 0.0 and int(optimizer.iterations.numpy()) == 1  # 8 / 2, cut to 1
    seen: list[int] = []
    keras3_replicas.set_reducer(wrapper, lambda gradients: seen.append(len(gradients)) or gradients)
    wrapper.apply([tf.constant([8.0])], [variable])
    assert seen == [1]
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(wrapper))
    assert not keras3_replicas.is_installed(restored)  # nothing of it is saved


@keras3
def test_where_keras_builds_a_model_before_any_callback() -> None:
    assert list(inspect.signature(keras3_workers._own_symbolic_build).parameters) == ["self", "iterator", "data_batch"]
    source = inspect.getsource(keras3_workers._own_symbolic_build)
    assert "strategy.reduce(" in source and "axis=None" in source  # the reason; when it is gone, look again
    fit = inspect.getsource(TensorFlowTrainer.fit)
    assert fit.index("_maybe_symbolic_build") < fit.index("CallbackList(") < fit.index("make_train_function")


@keras3
def test_callbacks_keep_their_paths_where_they_are_redirected(tmp_path: Any) -> None:
    from tfvolta.bridge.keras3_worker_files import _BACKUP_PATHS, _PATHS

    made = {
        "ModelCheckpoint": keras.callbacks.ModelCheckpoint(str(tmp_path / "a.keras")),
        "CSVLogger": keras.callbacks.CSVLogger(str(tmp_path / "a.csv")),
        "TensorBoard": keras.callbacks.TensorBoard(str(tmp_path / "logs")),
    }
    assert set(made) == set(_PATHS)
    for name, attribute in _PATHS.items():
        assert str(getattr(made[name], attribute)).startswith(str(tmp_path))
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    for attribute in _BACKUP_PATHS:
        assert str(getattr(backup, attribute)).startswith(str(tmp_path))
    assert "_load_model" in inspect.getsource(keras.callbacks.BackupAndRestore.on_train_begin)
