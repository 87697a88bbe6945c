"""The train step of a fit that is about to begin, traced for a batch of any size; nothing of it runs."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

import tensorflow as tf

from tfvolta.bridge import graphs
from tfvolta.bridge.layer_calls import CallRecord
from tfvolta.bridge.step_graph import StepReader
from tfvolta.errors import BridgeError, Problem
from tfvolta.footprint.step import Step


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A traced step.

    Attributes:
        step: Its operations.
        batch: Rows of the batch that it was traced for.
        input_shapes: Structure of the shapes of the model's inputs, without the batch.
        guessed: Whether dimensions that the data leave open are those of the first batch.
    """

    step: Step
    batch: int
    input_shapes: Any
    guessed: bool = False


def trace_step(
    model: Any, layers: Sequence[tuple[str, Any]], record: CallRecord, layer_class: Any, iterator: Any, batch: Any
) -> TracedStep:
    """Traces a model's train function for a batch.

    Args:
        model: A compiled model whose train function exists.
        layers: Its layers by path.
        record: An empty record of layer calls.
        layer_class: The class of all layers.
        iterator: What the train function will be called with.
        batch: Rows of the batch; those of the data where None.

    Raises:
        BridgeError: The step is run eagerly, or the data cannot be described.
    """
    functions = graphs.outermost(getattr(model, "train_function", None))
    if not functions or tf.config.functions_run_eagerly():
        raise _refused("a train step in a graph", "one that is run eagerly", "compile(run_eagerly=False)")
    specs, guessed = _specs(iterator, batch)
    data = _data(model, iterator, specs)
    with record.watching(layer_class):
        graph = functions[0].get_concrete_function(iter(data)).graph
    paths = {id(model): model.name, **{id(layer): path for path, layer in layers}}
    inputs = specs[0] if isinstance(specs, tuple) else specs
    shapes = tf.nest.map_structure(lambda spec: tuple(spec.shape[1:]), inputs)
    return TracedStep(StepReader(record, paths).read(graph), _rows(specs), shapes, guessed)


def data_like(model: Any, iterator: Any, batch: Optional[int]) -> Any:
    """A dataset without rows whose batches would have the form of an iterator's, with so many rows."""
    return _data(model, iterator, _specs(iterator, batch)[0])


def _data(model: Any, iterator: Any, specs: Any) -> Any:
    data = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=specs)
    return model.distribute_strategy.experimental_distribute_dataset(data) if hasattr(iterator, "_strategy") else data


def _specs(iterator: Any, batch: Optional[int]) -> tuple[Any, bool]:
    """What the iterator gives, with every dimension known; and whether the first batch had to be looked at."""
    specs = iterator.element_spec
    flat = tf.nest.flatten(specs)
    if not flat or not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in flat):
        raise _refused("dense data", f"{specs}", "batches of dense tensors", "others have a size in training only")
    is_open = any(None in spec.shape[1:].as_list() for spec in flat)
    if is_open or (batch is None and flat[0].shape[0] is None):
        first = tf.nest.flatten(next(iterator))
        known = [tf.TensorSpec(tensor.shape, spec.dtype) for tensor, spec in zip(first, flat)]
    else:
        known = flat
    rows = batch or known[0].shape[0]
    filled = [tf.TensorSpec([rows, *spec.shape[1:]] if spec.shape.rank else [], spec.dtype) for spec in known]
    return tf.nest.pack_sequence_as(specs, filled), is_open


def _rows(specs: Any) -> int:
    return int(tf.nest.flatten(specs)[0].shape[0])


def _refused(expected: str, received: str, fix: str, why: str = "") -> BridgeError:
    return BridgeError("The step cannot be looked at.", [Problem("model.fit", expected, received[:300], why, fix)])


def bytes_of_variables(variables: Sequence[Any]) -> int:
    """Bytes of variables, each once."""
    seen: dict[int, int] = {}
    for variable in variables:
        dtype = tf.dtypes.as_dtype(variable.dtype)
        shape = tf.TensorShape(variable.shape)
        seen[id(variable)] = int(shape.num_elements() or 0) * int(dtype.size) if dtype != tf.string else 0
    return sum(seen.values())
