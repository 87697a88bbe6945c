"""What every bridge does alike when a training goes on from a checkpoint: variables, traces, the data's iterator."""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.resuming_records import Named

_RIVAL = "BackupAndRestore"


def named(variables: Iterable[Any]) -> list[Named]:
    """Variables with their names, each once.

    A strategy's variable is asked for nothing but its name: anything else may read it, which takes all workers.
    """
    found: dict[int, Named] = {}
    for variable in variables:
        is_keras3 = not isinstance(variable, tf.Variable) and hasattr(variable, "path")
        name, held = (variable.path, variable.value) if is_keras3 else (variable.name, variable)
        found.setdefault(id(held), (str(name), held))
    return list(found.values())


def generators(model: Any) -> list[Named]:
    """States of the ``tf.random.Generator`` objects in a model."""
    found = [item for item in tf.train.TrackableView(model).descendants() if isinstance(item, tf.random.Generator)]
    return [(f"generator {number}", item.state) for number, item in enumerate(found)]


def trace_step(model: Any, iterator: Any) -> None:
    """Traces a model's train function for an iterator, after which every variable of the training exists.

    Nothing runs, no batch is taken, and training uses the trace. A step that runs eagerly is left alone.
    """
    if not tf.config.functions_run_eagerly() and not model.run_eagerly:
        for function in graphs.outermost(model.train_function):
            function.get_concrete_function(iterator)


def rivals(callbacks: Iterable[Any]) -> list[str]:
    """Class names of Keras's own callbacks that resume a fit, subclasses included."""
    return [type(each).__name__ for each in callbacks if any(c.__name__ == _RIVAL for c in type(each).__mro__)]


def is_remote(model: Any) -> bool:
    """Whether other processes read the data, each at its own pace (parameter servers)."""
    return isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy)


def is_saveable(iterator: Any) -> bool:
    """Whether an iterator is of the one kind whose state TensorFlow can save: of one device in one process."""
    return type(iterator).__name__ == "OwnedIterator"


def skip(iterator: Iterator[Any], batches: int) -> int:
    """Takes batches that were trained already from an iterator; how many there were."""
    for number in range(batches):
        try:
            next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return number
    return batches
