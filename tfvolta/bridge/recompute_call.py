"""A part of a traced step whose activations are not kept: its gradients run it a second time.

``tf.recompute_grad`` takes no keyword arguments in a graph, changes variables twice, draws new dropout masks, and XLA
may find both passes equal and keep the first one's activations. Here the second pass

- starts when the gradient of the result is there: of its inputs it gets copies that depend on that gradient;
- draws no random numbers and changes no variable, but uses what the first pass had (``recompute_ops``);
- is differentiated by a tape of its own, to which all trainable variables that the first pass read are known.

Source: tensorflow/python/ops/custom_gradient.py, ``recompute_grad`` and ``_graph_mode_decorator``.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Optional, Sequence

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from tfvolta.bridge import recompute_ops
from tfvolta.bridge.recompute_ops import FirstPass, SecondPass, Watch
from tfvolta.bridge.recompute_records import SCOPE, Repetition

Run = Callable[[Sequence[Any]], Sequence[Any]]


def is_due() -> bool:
    """Whether the code that runs now is traced into a graph and a tape looks on; no second pass has segments."""
    return not tf.executing_eagerly() and not recompute_ops.is_under_way() and bool(record.could_possibly_record())


def recomputed(
    run: Run, inputs: Sequence[Any], again: Callable[[], ContextManager[Any]], faults: Callable[[], str]
) -> tuple[list[Any], Repetition]:
    """Runs a part of a model, and makes its gradients run it again; only what it was given is kept until then.

    Args:
        run: Computes results from inputs, both flat lists of tensors; results may hold other things too.
        inputs: The tensors that it is given.
        again: Makes the surroundings of a second call, such as Keras's training mode.
        faults: Says after the first call why there must not be a second one; empty where there may.

    Returns:
        The results, and what becomes of them: of a part that cannot run twice, its plain results and the reason.
    """
    graph = tf.compat.v1.get_default_graph()
    first = FirstPass(graph)
    masks = [getattr(tensor, "_keras_mask", None) for tensor in inputs]  # attention takes them off its inputs
    with record.VariableWatcher() as watcher, recompute_ops.during(first):
        plain = list(run(inputs))
    repetition = Repetition(fault=first.fault or faults(), trace=id(graph))
    floats = [number for number, result in enumerate(plain) if _has_gradient(result)]
    if repetition.fault or not floats:
        repetition.fault = repetition.fault or "returns nothing that has a gradient"
        return plain, repetition
    part = _Part(run, list(zip(inputs, masks)), first, list(watcher.watched_variables()), again)
    results = list(plain)
    with record.stop_recording():
        for number, result in enumerate(plain):
            if tf.is_tensor(result):
                results[number] = _with_mask(tf.identity(result), getattr(result, "_keras_mask", None))
    part.floats = floats

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def gradients(*incoming: Any) -> list[Any]:
        return part.gradients(incoming, repetition)

    record.record_operation(
        "Recomputed",
        [results[number] for number in floats],
        [*part.sources, *(variable.handle for variable in part.variables)],
        gradients,
    )
    return results, repetition


class _Part:
    """One part: its first pass, and how it is differentiated.

    Attributes:
        sources: Tensors that get gradients: what it was given, and what its code had from elsewhere.
        variables: Trainable variables that it read.
        floats: Positions of the results that have gradients.
    """

    def __init__(self, run: Run, inputs: list[tuple[Any, Any]], first: FirstPass, variables: list[Any], again: Any):
        self._run = run
        self._inputs = inputs
        self._first = first
        self._again = again
        self.variables = variables
        self.floats: list[int] = []
        self._given = [number for number, (tensor, _) in enumerate(inputs) if _has_gradient(tensor)]
        given = [tensor for tensor, _ in inputs]
        self.sources = [given[number] for number in self._given] + _from_elsewhere(first, given)

    def gradients(self, incoming: Sequence[Any], repetition: Repetition) -> list[Any]:
        """Gradients of the sources and of the variables."""
        graph = tf.compat.v1.get_default_graph()
        with tf.name_scope(SCOPE):
            later = _Later(incoming)
            second = SecondPass(self._first, later, later.copies)
            watched = contextlib.nullcontext() if graph is not self._first.graph else recompute_ops.during(second)
            with self._again(), watched, tf.GradientTape(watch_accessed_variables=False) as tape:
                fresh = [_with_mask(later(tensor), mask) for tensor, mask in self._inputs]
                sources = [fresh[number] for number in self._given] + self.sources[len(self._given) :]
                tape.watch([*sources, *self.variables])
                results = self._run(fresh)
        after = Watch(graph)
        with recompute_ops.during(after):
            gradients = tape.gradient(
                [results[number] for number in self.floats],
                [*sources, *self.variables],
                output_gradients=list(incoming),
            )
        repetition.repeated(self._first, second, after)
        return list(gradients)


class _Later:
    """Makes copies of tensors that exist only once the gradients of a part have arrived.

    Without such a tie, equal operations on equal inputs are merged, and the activations of the first pass stay alive. A
    control dependency does for TensorFlow's graph optimiser. XLA knows none, and drops its own optimisation barrier on
    CPUs before it merges; so a zero that it cannot foresee is made out of a gradient and added.
    """

    def __init__(self, gradients: Sequence[Any]):
        self._gradients = [gradient for gradient in gradients if gradient is not None]
        self._zero: Optional[Any] = None
        if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            first = tf.cast(tf.reshape(self._gradients[0], [-1])[:1], tf.float32)
            finite = tf.where(tf.math.is_finite(first), first, tf.zeros_like(first))
            self._zero = tf.reduce_max(finite * 0.0)

    @property
    def copies(self) -> bool:
        """Whether a tensor is copied, and not only passed on."""
        return self._zero is not None

    def __call__(self, tensor: Any) -> Any:
        if self._zero is None:
            with tf.control_dependencies([getattr(each, "values", each) for each in self._gradients]):
                return tf.identity(tensor)
        if tensor.dtype == tf.bool:
            return tf.logical_or(tensor, tf.cast(self._zero, tf.bool))
        if tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_complex:
            return tensor + tf.cast(self._zero, tensor.dtype)
        return tensor


def _has_gradient(tensor: Any) -> bool:
    return bool(tf.is_tensor(tensor) and (tensor.dtype.is_floating or tensor.dtype.is_complex))


def _with_mask(copy: Any, mask: Any) -> Any:
    """A copy of a tensor, with the mask that Keras keeps on it."""
    if mask is not None:
        copy._keras_mask = mask
    return copy


def _from_elsewhere(first: FirstPass, inputs: Sequence[Any]) -> list[Any]:
    """Tensors that the code of a part used and was not given, such as an attribute that another layer has set."""
    own = {operation.name for operation in first.operations}
    known = {id(tensor) for tensor in inputs}
    found = {}
    for operation in first.operations:
        for tensor in operation.inputs:
            if tensor.op.name not in own and id(tensor) not in known and _has_gradient(tensor):
                found[tensor.name] = tensor
    return list(found.values())
