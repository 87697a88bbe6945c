"""Watches a model's train step so that a failure tells what batch it was and leaves the state of the batch before.

The step keeps the sizes of its batch in a variable of the host, which is all that is left of a batch when a step has
failed; it puts its writes off (``tfvolta.bridge.late_writes``), and counts when they begin and when they are done. What
cannot be put off is kept before each call: reading a variable shares its memory, so that nothing is copied.

A step that XLA compiles is one operation, which writes its results when it is done or not at all.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from typing import Any, Iterable, MutableMapping, Optional, cast

import tensorflow as tf

from tfvolta.bridge.guard_records import Shapes
from tfvolta.bridge.late_writes import Ordered, order_writes
from tfvolta.bridge.resuming_records import Named
from tfvolta.bridge.update_counter import Marks, UpdateCounter, plain_variable
from tfvolta.bridge.window import in_xla

_WATCH = "_tfvolta_step_watch"
_PARTS = ("x", "y", "sample_weight")


@dataclasses.dataclass(frozen=True)
class Before:
    """What was there before a call of the train function.

    Attributes:
        counts: Updates that had begun and that had ended; None where the step runs without a graph.
        kept: Variables with their values, of those that a step writes at once.
    """

    counts: Optional[Marks]
    kept: tuple[tuple[str, Any, Any], ...]


class StepWatch:
    """What is known of the steps of one model.

    Attributes:
        original: The train step that is watched.
        early: Names of variables that a step writes before it has computed everything, once it was traced.
        compiled: Whether the last trace was one for XLA.
        counter: Counts its updates.
    """

    def __init__(self, model: Any, groups: Any):
        """Prepares.

        Args:
            model: The model.
            groups: Called for the model's variables by group, as ``Bridge.training_variables`` gives them.
        """
        self.original = model.train_step
        self.early: Optional[dict[str, Any]] = None
        self.compiled = False
        self._groups = groups
        self._labels: tuple[tuple[str, int], ...] = ()
        self._eager_shapes: Shapes = ()
        self._traces: MutableMapping[Any, list[int]] = weakref.WeakKeyDictionary()  # first operation, steps that ended
        self._lock = threading.Lock()
        with tf.device("CPU:0"):
            nothing = tf.zeros([0], tf.int64)
            self._sizes = plain_variable(nothing, shape=tf.TensorShape(None), name="batch_sizes")
        self.counter = UpdateCounter()

    # -- inside the step

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def begins(self, data: Any) -> None:
        """A batch has come; in replica context, in a graph or not."""
        parts = labelled(data)
        if tf.executing_eagerly():
            self._eager_shapes = tuple((name, tuple(part.shape.as_list())) for name, part in parts)
            return
        self.compiled = in_xla()
        if not self.compiled:
            ranked = [(name, part) for name, part in parts if part.shape.rank is not None]
            self._labels = tuple((name, int(part.shape.rank)) for name, part in ranked)
            sizes = [tf.shape(part, out_type=tf.int64) for _, part in ranked]
            with tf.device("CPU:0"):
                self._sizes.assign(tf.concat(sizes or [tf.zeros([0], tf.int64)], 0), read_value=False)
        graph = tf.compat.v1.get_default_graph()
        with self._lock:
            self._traces.setdefault(graph, [len(graph.get_operations()), 0])

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def ends(self, model: Any, outputs: Any) -> Any:
        """A step was traced; the last replica of a graph orders the writes of all. Returns the outputs."""
        if tf.executing_eagerly():
            return outputs
        graph = tf.compat.v1.get_default_graph()
        strategy = model.distribute_strategy
        replicas = len(strategy.extended.worker_devices) if strategy.num_replicas_in_sync > 1 else 1
        with self._lock:
            trace = self._traces[graph]
            trace[1] += 1
            whole = self.compiled or trace[1] >= replicas
            if whole:
                del self._traces[graph]
        if self.compiled:
            self._count_compiled(model, outputs)
        elif whole:
            with tf.init_scope():
                groups = self._groups()
            known = {id(handle) for _, each in _weights_and_slots(model, groups) for handle in _handles(model, each)}
            step = graph.get_operations()[trace[0] :]
            self._learn(model, groups, order_writes(step, known, self.counter.begun, self.counter.ended))
        return outputs

    def _count_compiled(self, model: Any, outputs: Any) -> None:
        """Counts a step that XLA compiles; a replica's own step cannot reach the variable of another device."""
        self.early = {}
        if model.distribute_strategy.num_replicas_in_sync == 1:
            self.counter.count_one()

    def _learn(self, model: Any, groups: Any, ordered: Ordered) -> None:
        """Takes which variables a step writes at once."""
        by_handle = {
            id(h): (name, each) for held in groups.values() for name, each in held for h in _handles(model, each)
        }
        found = dict(self.early or {})
        for number, handle in enumerate(ordered.early):
            name, variable = by_handle.get(id(handle), (f"a variable of its own {number}", None))
            found[name] = variable
        self.early = found

    # -- around the step

    def before(self, model: Any) -> Before:
        """To be called before the train function is; no device is waited for."""
        counts = None if model.run_eagerly else self.counter.mark()
        if self.early is None:
            groups = self._groups()
            skipped = {id(each) for _, each in _weights_and_slots(model, groups)}
            small = [(n, v) for held in groups.values() for n, v in held if id(v) not in skipped]
        else:
            small = [(name, variable) for name, variable in self.early.items() if variable is not None]
        kept = []
        for name, variable in small:
            for copy in model.distribute_strategy.experimental_local_results(variable):
                kept.append((name, copy, tf.raw_ops.ReadVariableOp(resource=copy.handle, dtype=copy.dtype)))
        return Before(counts, tuple(kept))

    def keep(self, model: Any) -> Before:
        """As ``before``, with every variable that is neither weight nor slot."""
        groups = self._groups()
        skipped = {id(each) for _, each in _weights_and_slots(model, groups)}
        kept = [(n, v, v.read_value()) for held in groups.values() for n, v in held if id(v) not in skipped]
        return Before(self.counter.mark(), tuple(kept))

    def counted(self, model: Any, before: Before) -> Optional[tuple[int, int]]:
        """Updates that have begun and that have ended since; None where nothing counts them. Reads the device."""
        if before.counts is None or self.uncounted(model):
            return None
        if self.early is None:  # the step could not even be traced
            return 0, 0
        return self.counter.since(before.counts)

    def uncounted(self, model: Any) -> bool:
        """Whether nothing counts the updates: without a graph, and where XLA compiles each of several replicas."""
        several = model.distribute_strategy.num_replicas_in_sync > 1
        return bool(model.run_eagerly or (self.compiled and several))

    def put_back(self, before: Before) -> list[str]:
        """Gives the variables that were kept their values again; names of those that had changed."""
        changed = []
        for name, variable, value in before.kept:
            present = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            if not bool(tf.reduce_all(tf.equal(present, value))):
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
                changed.append(name)
        return list(dict.fromkeys(changed))

    def shapes(self, iterator: Any) -> Shapes:
        """Shapes of the last batch that a step was begun with; None for a size that is not known."""
        if self._eager_shapes:
            return self._eager_shapes
        if self._labels and not self.compiled:
            sizes, found, at = [int(size) for size in self._sizes.numpy()], [], 0
            for name, rank in self._labels:
                found.append((name, tuple(sizes[at : at + rank])))
                at += rank
            if at == len(sizes):
                return tuple(found)
        spec = getattr(iterator, "element_spec", None)
        return tuple(
            (name, tuple(part.shape.as_list())) for name, part in labelled(spec) if part.shape.rank is not None
        )


def watch(model: Any, groups: Any) -> tuple[StepWatch, bool]:
    """Watches a model's train step; whether it was not watched before, so that it has to be traced anew."""
    former: Any = model.__dict__.get(_WATCH)
    if former is not None and getattr(model.train_step, _WATCH, None) is former:
        return cast(StepWatch, former), False
    found = StepWatch(model, groups)
    model.__dict__[_WATCH] = found
    model.__dict__["train_step"] = _watched(model, found)
    return found, True


def _watched(model: Any, found: StepWatch) -> Any:
    original = found.original

    def train_step(data: Any) -> Any:  # autograph has to reach the script's own train step through it
        found.begins(data)
        outputs = original(data)
        return found.ends(model, outputs)

    train_step.__func__ = getattr(original, "__func__", None)  # type: ignore[attr-defined]
    setattr(train_step, _WATCH, found)
    return train_step


def _weights_and_slots(model: Any, groups: Any) -> Iterable[Named]:
    """The variables whose writes can always be put off."""
    trainable = {
        id(getattr(each, "value", each) if not isinstance(each, tf.Variable) else each)
        for each in model.trainable_variables
    }
    yield from ((name, each) for name, each in groups["model"] if id(each) in trainable)
    yield from groups["optimizer"]


def _handles(model: Any, variable: Any) -> list[Any]:
    return [each.handle for each in model.distribute_strategy.experimental_local_results(variable)]


def spec_shapes(spec: Any) -> Shapes:
    """Shapes of a batch as an iterator announces them."""
    return tuple((name, tuple(part.shape.as_list())) for name, part in labelled(spec) if part.shape.rank is not None)


def labelled(data: Any) -> list[tuple[str, Any]]:
    """The tensors, or their specs, of a batch with names such as ``x``, ``x[ids]`` or ``y[1]``."""
    parts = data if isinstance(data, tuple) and len(data) <= len(_PARTS) else (data,)
    found = [pair for name, part in zip(_PARTS, parts) for pair in _named(name, part)]
    return [(name, part) for name, part in found if hasattr(part, "shape")]


def _named(name: str, part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, dict):
        return [pair for key, each in part.items() for pair in _named(f"{name}[{key}]", each)]
    if isinstance(part, (list, tuple)):
        return [pair for number, each in enumerate(part) for pair in _named(f"{name}[{number}]", each)]
    if part is None or isinstance(part, (tf.Tensor, tf.TensorSpec)):
        return [] if part is None else [(name, part)]
    return [(f"{name}.{number}", each) for number, each in enumerate(tf.nest.flatten(part, expand_composites=True))]
