"""Which inputs of a model every layer that takes them casts to float16 before it looks at them.

Both Kerases cast floats in ``Layer.__call__``, ahead of ``call``, to the layer's compute dtype; a functional model
casts what it is given to the dtype of its ``Input`` first, which changes no float16 value.
Source: keras/src/layers/layer.py (``Layer.__call__``, ``_convert_input_args``), keras/src/models/functional.py
(``_convert_inputs_to_tensors``) and keras/src/ops/function.py (``_nodes_by_depth``) of Keras 3.15;
keras/src/engine/base_layer.py (``_maybe_cast_inputs``), functional.py (``_conform_to_reference_input``) and node.py of
Keras 2.15 and tf_keras 2.21.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge.input_records import HalfInputs

_KERAS = ("keras", "tf_keras")
_OWN = (*_KERAS, "tfvolta")  # what the bridge puts around a step hands the data on as they are
# Of a model, what may look at the data before a layer does.
_LOOKS = ("train_step", "compute_loss", "compute_metrics", "call", "__call__", "make_train_function")
_VALUES = frozenset({"Masking"})  # compares its input with a value


def half_inputs(model: Any) -> HalfInputs:
    """See ``tfvolta.bridge.input_records.Inputs.half_inputs``."""
    why = _own_code(model)
    graph = None if why else _graph(model)
    if graph is None:
        why = why or "the model has no graph of layers yet, or its code takes the data itself"
        return HalfInputs((), (), why)
    names = tuple(_name(tensor) for tensor in graph.inputs)
    return HalfInputs(names, tuple(_reason(graph, tensor) for tensor in graph.inputs))


def _own_code(model: Any) -> str:
    """What of a model is the script's own and may look at the data; empty for nothing."""
    for name in _LOOKS:
        method = vars(model).get(name) or getattr(type(model), name, None)
        if method is not None and not _is_of(method, _OWN):
            return f"{type(model).__name__}.{name} is the script's own and may look at the data"
    return ""


def _is_of(thing: Any, packages: tuple[str, ...]) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] in packages


def _graph(model: Any) -> Optional[Any]:
    """The functional graph that a model runs; None for one that is not built, or whose ``call`` is another."""
    found = getattr(model, "_functional", None) or model  # a Sequential of Keras 3 holds it
    if not getattr(found, "_nodes_by_depth", None) or not getattr(found, "inputs", None):
        return None
    return found if _is_of(type(model).call, _KERAS) else None


def _name(tensor: Any) -> str:
    return str(tensor.name).split(":")[0]


def _reason(graph: Any, tensor: Any) -> str:
    """Why an input must stay as it is; empty where all that take it cast it to float16."""
    if tf.as_dtype(tensor.dtype) != tf.float32:
        return f"the model takes it as {tf.as_dtype(tensor.dtype).name}"
    if any(tensor is output for output in graph.outputs):
        return "it is an output of the model as well"
    takers = [node for node in _nodes(graph) if any(tensor is taken for taken in _taken(node))]
    if not takers:
        return "no layer takes it"
    return next(filter(None, (_taker_reason(node, tensor) for node in takers)), "")


def _nodes(graph: Any) -> Iterator[Any]:
    """Calls of layers in a graph, inputs left out."""
    for nodes in graph._nodes_by_depth.values():
        yield from (node for node in nodes if not node.is_input)


def _taken(node: Any) -> list[Any]:
    """Symbolic tensors that a call takes."""
    return list(node.input_tensors) if hasattr(node, "operation") else list(node.keras_inputs)


def _taker_reason(node: Any, tensor: Any) -> str:
    """Why the layer of a call may see more of a tensor than its float16 value; empty where it does not."""
    layer = getattr(node, "operation", None) or node.layer
    arguments = node.arguments if hasattr(node, "arguments") else None
    args = node.call_args if arguments is None else arguments.args
    named = node.call_kwargs if arguments is None else arguments.kwargs
    if any(tensor is other for other in tf.nest.flatten([list(args[1:]), dict(named)])):
        return f"{layer.name} takes it as another argument than its first"
    inner = _graph(layer)
    if inner is None:
        return _layer_reason(layer)
    if _own_code(layer):
        return _own_code(layer)
    given = [args[0]] if not isinstance(args[0], (list, tuple)) else list(args[0])
    if len(given) != len(inner.inputs):
        return f"{layer.name} takes its inputs by name"
    places = [number for number, other in enumerate(given) if other is tensor]
    return next(filter(None, (_reason(inner, inner.inputs[number]) for number in places)), "")


def _layer_reason(layer: Any) -> str:
    """Why a layer may see more of its first argument than its float16 value."""
    kind = type(layer)
    computes = str(getattr(layer, "input_dtype", None) or getattr(layer, "compute_dtype", ""))
    casts = getattr(layer, "autocast", getattr(layer, "_autocast", False))
    if not casts or not getattr(layer, "_convert_input_args", True) or not _is_of(kind.__call__, _KERAS):
        return f"{layer.name} ({kind.__name__}) does not cast it"
    if computes != "float16":
        return f"{layer.name} ({kind.__name__}) computes in {computes}"
    if "preprocessing" in kind.__module__ or kind.__name__ in _VALUES:
        return f"{layer.name} ({kind.__name__}) looks at its values"
    return ""
