"""A trial run of a Keras 2 model in a scratch graph: does it compute, and which layers make its outputs?

Nothing is executed and no variable changes; the layers' code runs once, as it does when Keras traces the train step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import Any, Iterator, Optional, Sequence

import tensorflow as tf

from tfvolta.bridge.keras2_layers import is_input, is_operation, is_passing, nodes
from tfvolta.bridge.keras2_package import Package


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a trial run showed.

    Attributes:
        makers: Layers whose results reach the model's floating outputs with no other layer in between, and the layers
            before those that only pass values on.
        floating: dtypes of the model's floating outputs.
        half_makers: Those of ``makers`` whose results are outputs in float16 or bfloat16.
        culprit: The innermost layer whose call failed; None where the run succeeded.
        reason: Text of the error.
    """

    makers: tuple[Any, ...] = ()
    floating: tuple[str, ...] = ()
    half_makers: tuple[Any, ...] = ()
    culprit: Optional[Any] = None
    reason: str = ""


class _Recorder:
    """Results and the first failure of every layer call."""

    def __init__(self) -> None:
        self.owners: dict[int, Any] = {}
        self.arguments: dict[int, list[Any]] = {}
        self.kept: list[Any] = []  # keeps tensors alive, so that ids stay unique
        self.culprit: Optional[Any] = None
        self.reason = ""

    def success(self, layer: Any, inputs: Any, outputs: Any) -> None:
        self.kept.append((inputs, outputs))
        self.arguments[id(layer)] = self.arguments.get(id(layer), []) + _tensors(inputs)
        for tensor in _tensors(outputs):
            self.owners.setdefault(id(tensor), layer)

    def failure(self, layer: Any, error: Exception) -> None:
        if self.culprit is None:
            self.culprit, self.reason = layer, reason_of(error)


def try_out(package: Package, model: Any, spec: tuple[Sequence[Any], dict[str, Any]], training: bool) -> Trial:
    """Runs a model once in a scratch graph.

    Args:
        spec: Positional and keyword arguments of the call, as tensor specs or tensors.
        training: Whether the layers see training mode.
    """
    arguments = dict(spec[1])
    if model._expects_training_arg:
        arguments["training"] = training
    recorder = _Recorder()
    scratch = tf.__internal__.FuncGraph("tfvolta_trial")
    with _recorded(package, recorder), untouched_seeds(package, model), scratch.as_default():
        try:
            args, kwargs = tf.nest.map_structure(_placeholder, (list(spec[0]), arguments))
            outputs = model(*args, **kwargs)
        except Exception as error:  # a layer's code may raise anything
            recorder.failure(model, error)
            return Trial(culprit=recorder.culprit, reason=recorder.reason)
        finally:
            model._clear_losses()
    floating = [tensor for tensor in _tensors(outputs) if tensor.dtype.is_floating]
    makers = _makers(model, floating, recorder)
    halves = [tensor for tensor in floating if tensor.dtype in (tf.float16, tf.bfloat16)]
    return Trial(
        makers=tuple(makers),
        floating=tuple(tensor.dtype.name for tensor in floating),
        half_makers=tuple(_makers(model, halves, recorder)) if halves else (),
    )


def reason_of(error: Exception) -> str:
    """The line of an error that says what is wrong, without the frames that Keras and AutoGraph add."""
    text = str(error).split("Call arguments received by", 1)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind, message = type(error).__name__, lines[-1] if lines else "no message"
    return message if message.startswith(f"{kind}: ") else f"{kind}: {message}"


def _makers(model: Any, outputs: Sequence[Any], recorder: _Recorder) -> list[Any]:
    """Goes back from the outputs to the first layers met; goes on through layers that only pass values on."""
    found: list[Any] = []
    seen: set[int] = set()
    pending = list(outputs)
    while pending:
        tensor = pending.pop()
        if id(tensor) in seen or not tensor.dtype.is_floating:
            continue
        seen.add(id(tensor))
        owner = recorder.owners.get(id(tensor))
        if owner is None or owner is model:
            pending.extend(() if tensor.op.type == "Placeholder" else tensor.op.inputs)
            continue
        if is_input(owner):
            continue
        if not any(owner is layer for layer in found) and not is_operation(owner):
            found.append(owner)
        if is_passing(owner):
            pending.extend(recorder.arguments[id(owner)])
    return found


def _tensors(structure: Any) -> list[Any]:
    return [item for item in tf.nest.flatten(structure, expand_composites=True) if isinstance(item, tf.Tensor)]


def _placeholder(item: Any) -> Any:
    """A symbolic stand-in for a tensor; other arguments as they are."""
    if isinstance(item, tf.Tensor):
        item = tf.TensorSpec(item.shape, item.dtype)
    if isinstance(item, tf.TensorSpec):
        return tf.compat.v1.placeholder(item.dtype, item.shape)
    if isinstance(item, tf.TypeSpec):
        parts = [_placeholder(part) for part in tf.nest.flatten(item, expand_composites=True)]
        return tf.nest.pack_sequence_as(item, parts, expand_composites=True)
    return item


@contextlib.contextmanager
def _recorded(package: Package, recorder: _Recorder) -> Iterator[None]:
    """Watches every layer call of this thread."""
    original = package.layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            outputs = original(self, *args, **kwargs)
        except Exception as error:
            recorder.failure(self, error)
            raise
        recorder.success(self, (args, kwargs), outputs)
        return outputs

    package.layer.__call__ = call
    try:
        yield
    finally:
        package.layer.__call__ = original


@contextlib.contextmanager
def untouched_seeds(package: Package, model: Any) -> Iterator[None]:
    """Leaves every source of random numbers as it was: a trial must not change what is drawn afterwards."""
    generators = [layer._random_generator for layer in _layers(model) if hasattr(layer, "_random_generator")]
    seeds = [(item, item._seed) for item in generators if hasattr(item, "_seed")]
    keras_generator = getattr(package.backend._SEED_GENERATOR, "generator", None)
    keras_state = keras_generator.getstate() if keras_generator else None
    python_state = random.getstate()
    try:
        yield
    finally:
        random.setstate(python_state)
        if keras_generator:
            keras_generator.setstate(keras_state)
        for item, seed in seeds:
            item._seed = seed


def _layers(model: Any) -> list[Any]:
    return [model, *(node.layer for node in nodes(model))]
