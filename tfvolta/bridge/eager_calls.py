"""Every layer call of an eager train step: whether what came in and went out was finite, forwards and backwards."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import tensorflow as tf


@dataclasses.dataclass
class LayerCall:
    """One call of one layer.

    Attributes:
        layer: The layer.
        path: Its path in the model.
        holds_calls: Whether other layers were called inside.
        bad_inputs: What of its inputs was not finite; empty where all was.
        bad_outputs: Likewise of its outputs.
        gradient_in: Whether the gradient of an output was finite; None where none came.
        gradient_out: Whether the gradients that it gave to its inputs were; None where it gave none.
        dtype: Of its floating outputs.
    """

    layer: Any
    path: str
    holds_calls: bool = False
    bad_inputs: str = ""
    bad_outputs: str = ""
    gradient_in: Optional[bool] = None
    gradient_out: Optional[bool] = None
    dtype: str = ""


class LayerCalls:
    """Notes calls while it is in force; each replica's code runs in a thread of its own.

    Attributes:
        threads: Calls of each thread in the order in which they ended, inner ones first.
    """

    def __init__(self, model: Any, paths: Mapping[int, str]):
        self._model = model
        self._paths = paths
        self._open: dict[int, list[LayerCall]] = {}
        self.threads: dict[int, list[LayerCall]] = {}

    @contextlib.contextmanager
    def watching(self, classes: Sequence[Any]) -> Iterator[None]:
        """Notes the calls of instances of some classes, the most special first."""
        originals = [(cls, cls.__call__) for cls in classes]
        for number, (cls, original) in enumerate(originals):
            cls.__call__ = self._hook(original, tuple(each for each, _ in originals[:number]))
        try:
            yield
        finally:
            for cls, original in originals:
                cls.__call__ = original

    def _hook(self, original: Callable[..., Any], noted_elsewhere: tuple[Any, ...]) -> Callable[..., Any]:
        def call(layer: Any, *arguments: Any, **keywords: Any) -> Any:
            if layer is self._model or isinstance(layer, noted_elsewhere):
                return original(layer, *arguments, **keywords)
            return self._noted(original, layer, arguments, keywords)

        return call

    def _noted(self, original: Callable[..., Any], layer: Any, arguments: Any, keywords: Any) -> Any:
        thread = threading.get_ident()
        around = self._open.setdefault(thread, [])
        noted = LayerCall(layer, self._paths.get(id(layer), layer.name))
        for outer in around:
            outer.holds_calls = True

        def given(gradient: Any) -> None:
            noted.gradient_out = noted.gradient_out is not False and not unfit(gradient)

        def came(gradient: Any) -> None:
            noted.gradient_in = noted.gradient_in is not False and not unfit(gradient)

        noted.bad_inputs = _first_unfit((arguments, keywords))
        arguments, keywords = tf.nest.map_structure(lambda each: _tapped(each, given), (arguments, keywords))
        around.append(noted)
        try:
            outputs = original(layer, *arguments, **keywords)
        finally:
            around.pop()
        noted.bad_outputs = _first_unfit(outputs)
        noted.dtype = next((each.dtype.name for each in tf.nest.flatten(outputs) if _is_floating(each)), "")
        self.threads.setdefault(thread, []).append(noted)
        return tf.nest.map_structure(lambda each: _tapped(each, came), outputs)


def unfit(value: Any) -> str:
    """What of a tensor is not finite, such as ``3 of 8 numbers: inf``; empty where all is, or nothing floats."""
    value = value.values if isinstance(value, tf.IndexedSlices) else value
    if not _is_floating(value):
        return ""
    value = tf.cast(value, tf.float64)
    bad = tf.logical_not(tf.math.is_finite(value))
    number = int(tf.math.count_nonzero(bad))
    if not number:
        return ""
    kinds = {"NaN": tf.math.is_nan(value), "inf": tf.math.is_inf(value)}
    names = [name for name, flags in kinds.items() if bool(tf.reduce_any(flags))]
    return f"{' and '.join(names)} in {number} of {int(tf.size(value))} numbers"


def _first_unfit(structure: Any) -> str:
    return next(filter(None, map(unfit, tf.nest.flatten(structure))), "")


def _is_floating(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and hasattr(value, "numpy") and bool(value.dtype.is_floating)


def _tapped(value: Any, note: Callable[[Any], None]) -> Any:
    """The same tensor; its gradient is noted on its way back. Masks that Keras hangs on tensors stay."""
    if not _is_floating(value):
        return value

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def tap(tensor: Any) -> Any:
        def back(gradient: Any) -> Any:
            note(gradient)
            return gradient

        return tf.identity(tensor), back

    tapped = tap(value)
    mask = getattr(value, "_keras_mask", None)
    if mask is not None:
        tapped._keras_mask = mask
    return tapped
