"""Keras 3: one symbolic call of a model, to see which layer fails under a policy and which makes the outputs.

The call runs in a scratch graph and a stateless scope, as Keras's own shape inference does, so that no variable
changes and nothing is computed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import Any, Iterator, Optional

import keras
import tensorflow as tf
from keras.src import backend, tree
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.models.functional import Functional

from tfvolta.bridge import keras3_running_fit

SHAPE_ONLY = tuple(
    getattr(keras.layers, name)
    for name in (
        "Reshape",
        "Flatten",
        "Permute",
        "RepeatVector",
        "Identity",
        "Dropout",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
        "Concatenate",
        "Cropping1D",
        "Cropping2D",
        "Cropping3D",
        "ZeroPadding1D",
        "ZeroPadding2D",
        "ZeroPadding3D",
    )
    if hasattr(keras.layers, name)
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Trace:
    """What one symbolic call showed.

    Attributes:
        calls: Layers in the order in which their calls ended, inner ones first, with the tensors that they returned.
        outputs: Tensors that the model returned.
        error: What the call raised, or None.
        failed: The innermost layer in whose call the error arose.
    """

    calls: list[tuple[Any, list[Any]]] = dataclasses.field(default_factory=list)
    outputs: list[Any] = dataclasses.field(default_factory=list)
    error: Optional[BaseException] = None
    failed: Any = None

    def producers(self) -> list[Any]:
        """Layers from whose tensors the outputs are computed without another layer in between.

        A model, or a layer of the user's own that holds layers, is looked through: its own operations run in the
        dtype of what the layers inside it return.
        """
        maker: dict[int, Any] = {}
        for layer, tensors in self.calls:
            if not is_container(layer):
                for tensor in tensors:
                    maker.setdefault(id(tensor), layer)
        found: dict[int, Any] = {}
        pending, seen = list(self.outputs), set()
        while pending:
            tensor = pending.pop()
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if id(tensor) in maker:
                layer = maker[id(tensor)]
                found[id(layer)] = layer
                if not isinstance(layer, SHAPE_ONLY):
                    continue
            if hasattr(tensor, "op"):
                pending.extend(tensor.op.inputs)
        return list(found.values())


def is_builtin(layer: Any) -> bool:
    """Whether a layer's class is Keras's own."""
    return type(layer).__module__.split(".")[0] == "keras"


def is_container(layer: Any) -> bool:
    """Whether a layer is a model, or of a user's class that holds layers."""
    return isinstance(layer, keras.Model) or bool(layer._layers and not is_builtin(layer))


def trace(model: Any) -> Optional[Trace]:
    """Calls a model symbolically in training mode, which builds it if need be; None where its inputs are not known."""
    specs = input_specs(model)
    if specs is None:
        return None
    result = Trace()
    keyword = {"training": True} if model._call_has_training_arg else {}
    scopes = (backend.StatelessScope(collect_losses=False), SymbolicScope(), _scratch_graph(), _recorded(result, model))
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(scope)
        arguments, keywords = tree.map_structure(_placeholder, specs)
        try:
            outputs = model(*arguments, **keywords, **keyword)
            result.outputs = [tensor for tensor in tree.flatten(outputs) if tf.is_tensor(tensor)]
        except Exception as error:  # whatever a user's call raises is the finding
            result.error = error
            result.failed = result.failed if result.failed is not None else model
    return result


def _scratch_graph() -> Any:
    return tf.__internal__.FuncGraph("tfvolta_probe").as_default()


def reason(error: BaseException) -> str:
    """The message of an error raised inside a layer, without Keras's frame and the list of arguments."""
    text = _ANSI.sub("", str(error))
    match = re.search(r"Exception encountered when calling .*?\n\n(.*?)(?:\n\nArguments received|\Z)", text, re.S)
    while match and match.group(1) != text:
        text = match.group(1)
        match = re.search(r"Exception encountered when calling .*?\n\n(.*?)(?:\n\nArguments received|\Z)", text, re.S)
    line = " ".join(text.split())
    return f"{type(error).__name__}: {line[:300]}"


def input_specs(model: Any) -> Optional[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of a model's call as KerasTensors, or None where they are not known.

    They come from the model's graph, else from the data of the running fit, else from the shapes of its ``build``.
    """
    graph = model._functional if isinstance(model, keras.Sequential) else model
    if isinstance(graph, Functional):
        return (graph._inputs_struct,), {}
    inputs = keras3_running_fit.input_spec(model)
    if inputs is not None:
        return (inputs,), {}
    shapes = model._build_shapes_dict
    if not model.built or not shapes:
        return None
    if set(shapes) <= {"input_shape", "inputs_shape"}:
        return (_tensors(next(iter(shapes.values()))),), {}
    return (), {name[: -len("_shape")] if name.endswith("_shape") else name: _tensors(s) for name, s in shapes.items()}


def _tensors(shapes: Any) -> Any:
    """float32 tensors of a structure of shapes; Keras records no dtype, and layers that need integers cast."""
    return tree.map_shape_structure(
        lambda shape: backend.KerasTensor((None, *shape[1:]), dtype="float32") if shape else None, shapes
    )


def _placeholder(spec: Any) -> Any:
    if not isinstance(spec, backend.KerasTensor):
        return spec
    if spec.sparse:
        return tf.compat.v1.sparse_placeholder(shape=spec.shape, dtype=spec.dtype)
    return tf.compat.v1.placeholder(shape=spec.shape, dtype=spec.dtype)


@contextlib.contextmanager
def _recorded(result: Trace, model: Any) -> Iterator[None]:
    """Notes every layer call while the block runs."""
    original = keras.Layer.__call__

    def call(layer: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            outputs = original(layer, *arguments, **keywords)
        except Exception:
            if result.failed is None:
                result.failed = layer
            raise
        if layer is not model:
            result.calls.append((layer, [tensor for tensor in tree.flatten(outputs) if tf.is_tensor(tensor)]))
        return outputs

    keras.Layer.__call__ = call
    try:
        yield
    finally:
        keras.Layer.__call__ = original
