"""Keras 3: train, test and predict functions that a coordinator runs on the next free worker."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, concat, reduce_per_replica

from tfvolta.bridge import keras3_lone_metrics, keras3_shard_step
from tfvolta.bridge.keras3_coordinated_iterator import WorkerBatches
from tfvolta.errors import PlanError, Problem

_Step = Callable[[Any], Any]


class CoordinatedFunction:
    """A train or test function; Keras calls it with an iterator and gets logs.

    The first step of an epoch is waited for. After that logs are those of the newest step that is known to have
    finished, which is a few steps back; at the end of an epoch Keras reads the metrics themselves, when all is done.

    Attributes:
        held_functions: Its ``tf.function`` objects, for who wants to look at the graph.
    """

    def __init__(self, model: Any, step_function: _Step) -> None:
        """Makes the functions; they are traced when they are given out first.

        Raises:
            PlanError: The model cannot be trained like this.
        """
        _refuse(model)
        self._coordinator = coordinator_of(model)
        self._model = model
        trains = step_function.__name__ == "train_step"
        alone = keras3_lone_metrics.isolate(model)
        # A test step may be given out ahead only where two of them at once leave the metrics right.
        own_test = getattr(step_function, "__func__", None) is not TensorFlowTrainer.test_step
        self._ahead = self._coordinator.steps_ahead if trains or (alone and not own_test) else 1
        one = _step_on_data(model, step_function)
        self._on_data = tf.function(_step_on_data(model, _on_a_share(model, step_function)), reduce_retracing=True)
        several = model.steps_per_execution > 1
        self._on_iterator = tf.function(_steps_on_iterator(one, several), reduce_retracing=True)
        self.held_functions = (self._on_data, self._on_iterator)

    def __call__(self, iterator: Any) -> Any:
        """Gives out one step, or as many as Keras does in one execution."""
        if isinstance(iterator, WorkerBatches):
            return self._give_out(self._on_iterator, tuple(iterator))
        logs = None
        for _, data in zip(range(self._model.steps_per_execution), iterator):
            logs = self._give_out(self._on_data, (_tensors(data),))
        if logs is None:
            raise StopIteration
        if not isinstance(iterator, tf.data.Iterator):  # train_on_batch and test_on_batch
            self._coordinator.join()
        return logs

    def _give_out(self, function: Any, arguments: Any) -> Any:
        self._coordinator.schedule_within(self._ahead, function, arguments)
        return self._coordinator.newest(function)


class CoordinatedPrediction:
    """A predict function; Keras calls it with a list of batches and gets their outputs, in order.

    Attributes:
        held_functions: Its ``tf.function`` objects.
    """

    def __init__(self, model: Any) -> None:
        _refuse(model)
        self._coordinator = coordinator_of(model)
        step = _on_a_share(model, model.predict_step)
        self._function = tf.function(_step_on_data(model, step, "concat"), reduce_retracing=True)
        self.held_functions = (self._function,)

    def __call__(self, batches: list[Any]) -> Any:
        """The outputs of some batches."""
        given = [self._coordinator.schedule(self._function, args=(_tensors(batch),)) for batch in batches]
        outputs = [self._coordinator.wait_for(remote) for remote in given]
        return outputs[0] if len(outputs) == 1 else tree.map_structure(lambda *parts: concat(list(parts)), *outputs)


def coordinator_of(model: Any) -> Any:
    """The coordinator of a model's strategy."""
    return tf.distribute.coordinator.ClusterCoordinator(model.distribute_strategy)


def _step_on_data(model: Any, step_function: _Step, reduction: str = "auto") -> _Step:
    """A step with a batch, on all GPUs of one worker."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def one_step_on_data(data: Any) -> Any:
        with keras3_shard_step.shards_stand_in(model):  # for all replicas together, which are traced by turns
            outputs = model.distribute_strategy.run(step_function, args=(data,))
        return reduce_per_replica(outputs, model.distribute_strategy, reduction=reduction)

    return model._autoconvert_optionals(one_step_on_data)  # type: ignore[no-any-return]


def _on_a_share(model: Any, step_function: _Step) -> _Step:
    """A step with a batch that came from the chief in one piece: each GPU of the worker takes its part of it."""
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if replicas == 1:
        return step_function

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def step_on_a_share(data: Any) -> Any:
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)

        def share(part: Any) -> Any:
            if part is None:
                return None
            if isinstance(part, tf.SparseTensor):
                raise _sparse()
            rows = part.nrows(tf.int32) if isinstance(part, tf.RaggedTensor) else tf.shape(part)[0]
            return part[rows * number // replicas : rows * (number + 1) // replicas]

        return step_function(tree.map_structure(share, data))

    return step_on_a_share  # type: ignore[no-any-return]


def _sparse() -> PlanError:
    problem = Problem(
        where="data",
        expected="dense or ragged batches, or a tf.data.Dataset of known size",
        received="sparse batches that are read in the chief, for workers with several GPUs",
        why="a sparse batch cannot be cut into a part for each GPU in the worker",
        fix="give fit a tf.data.Dataset of known size, which each worker reads and divides itself",
    )
    return PlanError("These batches cannot be divided.", [problem])


def _steps_on_iterator(one_step: _Step, several: bool) -> Any:
    """Steps with a worker's own batches, as many as it is told."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def steps_on_iterator(iterator: Any, steps: Any) -> Any:
        first = one_step(iterator.get_next())
        if not several:
            return first

        def next_step(number: Any, _: Any) -> Any:
            return number + 1, one_step(iterator.get_next())

        return tf.while_loop(lambda number, _: number < steps, next_step, (tf.constant(1), first))[1]

    return steps_on_iterator


def _tensors(data: Any) -> Any:
    """A batch as tensors, which alone can travel; what is left out stays so."""
    return tree.map_structure(lambda part: part if part is None or _travels(part) else tf.convert_to_tensor(part), data)


def _travels(part: Any) -> bool:
    return isinstance(part, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor))


def _refuse(model: Any) -> None:
    """Refuses what cannot be sent to a worker.

    Raises:
        PlanError: With everything that cannot.
    """
    keras3_shard_step.refuse(model)
    problems = list(_problems(model))
    if problems:
        raise PlanError("This model cannot be trained with parameter servers.", problems)


def _problems(model: Any) -> Iterator[Problem]:
    if model.run_eagerly:
        yield Problem(
            where=f"model {model.name}: compile",
            expected="run_eagerly=False",
            received="run_eagerly=True",
            why="a worker is sent a graph; Python code runs in this process only",
            fix="leave run_eagerly out",
        )
    if model.jit_compile:
        yield Problem(
            where=f"model {model.name}: compile",
            expected="jit_compile=False",
            received="jit_compile=True",
            why="XLA compiles for one device of one process, and the variables are in other processes",
            fix="leave jit_compile out, or set xla.jit: off",
        )
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        yield Problem(
            where=f"model {model.name}: optimizer",
            expected="an optimizer without dynamic loss scaling",
            received="a LossScaleOptimizer",
            why="a worker may change the scale between another's loss and its gradients, which are then divided by "
            "another number than they were multiplied with",
            fix="set mixed_precision.policy: mixed_bfloat16, or leave it out; mixed_float16 needs another strategy",
        )
