"""The part of every bridge that knows a model layer by layer: shapes, weights and multiply-adds."""

from __future__ import annotations

from typing import Any, Optional, Protocol

from tfvolta.bridge.compiled_memory import compiled_memory
from tfvolta.bridge.layer_calls import Call, CallRecord, Work, shape_of, work_by_layer
from tfvolta.bridge.loaded_memory import LoadedMemory, loaded_memory
from tfvolta.bridge.symbolic_call import InputShape, SymbolicCall
from tfvolta.bridge.traced_memory import TracedMemory, traced_memory
from tfvolta.bridge.traced_step import TracedStep, bytes_of_variables, trace_step
from tfvolta.footprint.layer import LayerFigures, Shape, WeightFigures
from tfvolta.footprint.memory import Variables


class FootprintAdapter(Protocol):
    """What differs between Keras 2 and Keras 3.

    Attributes:
        layer_class: The class of all layers.
    """

    layer_class: Any

    def symbolic_call(self, model: Any, batch_size: int, input_shape: InputShape) -> SymbolicCall:
        """Calls a model on placeholders."""

    def weights_of(self, layer: Any, whole: bool) -> list[tuple[Any, bool]]:
        """Variables of a layer, with those of the layers inside if ``whole``, and whether each is trained."""

    def is_whole(self, layer: Any) -> bool:
        """Whether the layers inside a layer are part of it: recurrent layers and their cells."""


class _Bridge(Protocol):
    """What the part needs of the bridge that it belongs to."""

    footprint_adapter: FootprintAdapter

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """Every layer below the model by path."""

    def reset_functions(self, model: Any) -> None:
        """Forgets the traced functions."""


class FootprintPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``."""

    def layer_figures(self: _Bridge, model: Any, batch_size: int, input_shape: InputShape = None) -> list[LayerFigures]:
        """Figures of every layer that computes or holds something, in the order of the forward pass."""
        called = self.footprint_adapter.symbolic_call(model, batch_size, input_shape)
        return figures_of(self.footprint_adapter, self.layers(model), model, called)

    def step_for_batch(self: _Bridge, model: Any, iterator: Any, batch: Optional[int] = None) -> TracedStep:
        """The train step that is about to run, traced for a batch of any size; from ``before_first_step``."""
        self.reset_functions(model)  # a function that was traced before would not call its layers again
        record = CallRecord(self.footprint_adapter.is_whole)
        layer_class = self.footprint_adapter.layer_class
        return trace_step(model, self.layers(model), record, layer_class, iterator, batch)

    def compiled_memory(self, model: Any, iterator: Any, batch: Optional[int] = None) -> dict[str, Any]:
        """What XLA's own analysis says of a compiled step's memory; it compiles the step once more."""
        return compiled_memory(model, iterator, batch)

    def loaded_memory(self, model: Any) -> LoadedMemory:
        """What XLA's analysis says of the step that was compiled, and allocators of their memory; compiles nothing."""
        return loaded_memory(model)

    def traced_memory(self, model: Any, rows: Optional[int] = None, resident: Optional[int] = None) -> TracedMemory:
        """What the running fit's step holds at its worst moment, from the trace that it runs."""
        return traced_memory(model, rows, resident)

    def variable_bytes(self, model: Any) -> Variables:
        """Bytes of a model's weights and of its optimiser's variables, so far as they were made."""
        own = getattr(getattr(model, "optimizer", None), "variables", ())
        return Variables(
            weights=bytes_of_variables(model.weights),
            trainable=bytes_of_variables(model.trainable_weights),
            optimizer=bytes_of_variables(own() if callable(own) else own),
        )


def figures_of(
    adapter: FootprintAdapter, layers: list[tuple[str, Any]], model: Any, called: SymbolicCall
) -> list[LayerFigures]:
    """The figures of a model from a symbolic call of it."""
    work, reached = work_by_layer(called.record, called.outputs, model, lambda layer: _steps(called, layer))
    calls: dict[int, list[Call]] = {}
    for call in called.record.calls:
        if id(call.graph) in reached:  # Keras calls some layers once more to learn the shape of their results
            calls.setdefault(id(call.layer), []).append(call)
    order = {number: position for position, number in enumerate(calls)}
    inside = {id(cell) for _, layer in layers if adapter.is_whole(layer) for cell in _below(layers, layer)}
    rows = [(path, layer) for path, layer in [(model.name, model), *layers] if id(layer) not in inside]
    rows.sort(key=lambda row: order.get(id(row[1]), len(order)))
    found = [_figures(adapter, path, layer, calls.get(id(layer), []), work.get(id(layer))) for path, layer in rows]
    return [row for row, (_, layer) in zip(found, rows) if _says_something(row, layer, model)]


def _says_something(row: LayerFigures, layer: Any, model: Any) -> bool:
    """Whether a row belongs into the table: not the model itself, or a container, that does nothing of its own."""
    if row.weights or row.products or row.multiply_adds is None:
        return True
    return row.calls > 0 and layer is not model and row.kind != "InputLayer"


def _figures(adapter: FootprintAdapter, path: str, layer: Any, calls: list[Call], work: Optional[Work]) -> LayerFigures:
    work = work or Work()
    weights = tuple(
        WeightFigures(_name(weight), tuple(int(size) for size in weight.shape), _dtype(weight), trained)
        for weight, trained in adapter.weights_of(layer, adapter.is_whole(layer))
    )
    return LayerFigures(
        name=path,
        kind=type(layer).__name__,
        input_shapes=_shapes(tensor for call in calls for tensor in call.inputs),
        output_shapes=_shapes(tensor for call in calls for tensor in call.outputs),
        compute_dtype=str(layer.compute_dtype),
        weights=weights,
        multiply_adds=None if work.unknown else sum(product.multiply_adds for product in work.products),
        products=tuple(work.products),
        calls=len(calls),
    )


def _shapes(tensors: Any) -> tuple[Shape, ...]:
    """Shapes of the tensors of which they are known; dimensions that are not are 0."""
    shapes = []
    for tensor in tensors:
        known = shape_of(tensor)
        if known is None and tensor.shape.rank is not None:
            known = tuple(int(size or 0) for size in tensor.shape)
        if known is not None:
            shapes.append(known)
    return tuple(shapes)


def _below(layers: list[tuple[str, Any]], outer: Any) -> list[Any]:
    """Layers below a layer, by their paths."""
    prefix = next(path for path, layer in layers if layer is outer) + "/"
    return [layer for path, layer in layers if path.startswith(prefix)]


def _steps(called: SymbolicCall, layer: Any) -> Optional[int]:
    """How often the loop of a recurrent layer runs: the second dimension of its input, or the first if time-major."""
    for call in called.record.calls:
        if call.layer is layer and call.inputs and hasattr(layer, "return_sequences"):
            shape = call.inputs[0].shape
            return None if shape.rank is None or shape.rank < 3 else _size(shape[0 if _time_major(layer) else 1])
    return None


def _time_major(layer: Any) -> bool:
    return bool(getattr(layer, "time_major", False))


def _size(size: Any) -> Optional[int]:
    return None if size is None else int(size)


def _name(weight: Any) -> str:
    return str(getattr(weight, "path", None) or weight.name)


def _dtype(weight: Any) -> str:
    """The type in which a variable is stored; Keras 3 gives its name, Keras 2 TensorFlow's type."""
    return str(getattr(weight.dtype, "name", weight.dtype))
