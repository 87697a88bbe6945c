"""One call of a model on placeholders of a full shape, with every layer call noted; nothing is computed."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence, Union

import tensorflow as tf

from tfvolta.bridge.layer_calls import CallRecord
from tfvolta.errors import BridgeError, Problem

# A shape without the batch, or a list or dictionary of them for several inputs.
InputShape = Union[Sequence[Any], "dict[str, Any]", None]


@dataclasses.dataclass
class SymbolicCall:
    """What one call left.

    Attributes:
        graph: The graph that it was made in.
        record: The layer calls.
        inputs: Placeholders.
        outputs: Tensors that the model returned.
        variables: Trainable variables that a gradient can be taken of, if the call was taped.
        gradients: Their gradients, None for those that the outputs do not depend on.
        forward_operations: Operations that the graph had when the model returned; those behind are the backward pass.
    """

    graph: Any
    record: CallRecord
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    variables: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    forward_operations: int = 0


def scratch_graph() -> Any:
    """An empty graph of a function that is never run."""
    return tf.__internal__.FuncGraph("tfvolta_footprint")


def specs_of_shapes(input_shape: InputShape, batch_size: Optional[int], dtype: str = "float32") -> Any:
    """Specs of what a user gave as ``input_shape``: a shape without the batch, or a list or dictionary of shapes."""
    if isinstance(input_shape, dict):
        return {name: specs_of_shapes(shape, batch_size, dtype) for name, shape in input_shape.items()}
    assert input_shape is not None
    if any(isinstance(part, (list, tuple)) for part in input_shape):
        return [specs_of_shapes(shape, batch_size, dtype) for shape in input_shape]
    return tf.TensorSpec([batch_size, *input_shape], dtype)


def full_specs(specs: Any, batch_size: int, input_shape: InputShape) -> Any:
    """A structure of specs with the batch in front, and with the user's shapes where there are any.

    Args:
        specs: Structure of anything with ``shape`` and ``dtype``; None where nothing is known.
        batch_size: Examples.
        input_shape: See ``Bridge.layer_figures``.

    Raises:
        BridgeError: A size is not known, or there are more shapes than inputs.
    """
    if specs is None:
        if input_shape is None:
            raise _unknown("a model that was built or called", "one whose inputs are not known", "input_shape=(...)")
        return specs_of_shapes(input_shape, batch_size)
    flat = tf.nest.flatten(specs)
    given: list[Any] = [None] * len(flat)
    if input_shape is not None:
        given = tf.nest.flatten(specs_of_shapes(input_shape, batch_size))
        if len(given) != len(flat):
            raise _unknown(f"{len(flat)} shapes, one for each input", f"{len(given)}", "a list or dict of shapes")
    filled = [_filled(spec, batch_size, shape) for spec, shape in zip(flat, given)]
    return tf.nest.pack_sequence_as(specs, filled)


def _filled(spec: Any, batch_size: int, given: Any) -> Any:
    if isinstance(spec, tf.TypeSpec) and not isinstance(spec, tf.TensorSpec):
        kind = type(spec).__name__
        raise _unknown("dense inputs", kind, "a dense input", why="how many values it holds is known in training only")
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        return spec  # a constant argument
    dtype = tf.dtypes.as_dtype(spec.dtype)
    shape = given.shape if given is not None else tf.TensorShape(spec.shape)
    if shape.rank is None or None in shape[1:].as_list():
        raise _unknown("a full shape of each input", str(shape), "input_shape=(...), without the batch")
    return tf.TensorSpec([batch_size, *shape[1:]], dtype)


def _unknown(expected: str, received: str, fix: str, why: str = "shapes of layers follow from it") -> BridgeError:
    problem = Problem("layer_figures: inputs of the model", expected, received, why, fix)
    return BridgeError("The figures of the layers cannot be known.", [problem])


def placeholders(specs: Any) -> Any:
    """Placeholders in the current graph for a structure of specs; anything else as it is."""
    return tf.nest.map_structure(
        lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape) if isinstance(spec, tf.TensorSpec) else spec,
        specs,
    )


def tensors_of(structure: Any) -> tuple[Any, ...]:
    """The tensors in a structure."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    return tuple(item for item in flat if isinstance(item, tf.Tensor))


def failed(model: Any, error: Exception) -> BridgeError:
    """What is raised where the model cannot be called like this."""
    problem = Problem(
        where=f"layer_figures: call of {model.name}",
        expected="a model that can be called on these inputs",
        received=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        fix="check input_shape and the batch size against the data that the model is trained on",
    )
    return BridgeError("The figures of the layers cannot be known.", [problem])
