"""The shapes of the batches that a running ``fit`` trains with, seen as they come.

XLA compiles a step for each combination of shapes, and TensorFlow does not say when. A data set that leaves a dimension
open is passed through a function that notes each new combination; the batches themselves stay as they are. It is put
where ``fit`` takes its iterators from, before the first one is made: ``_distributed_dataset`` of Keras 3's epoch
iterator, ``_dataset`` of Keras 2's data handler.
Source: keras/src/backend/tensorflow/trainer.py of Keras 3.15; keras/src/engine/data_adapter.py of Keras 2.15.
"""

from __future__ import annotations

import collections
from typing import Any, Dict, Iterator, Tuple

import numpy as np
import tensorflow as tf

from tfvolta.bridge import datasets, running_fit

# Shapes of a batch's parts by name, such as ``{"x": (16, 64), "y": (16,)}``.
Shapes = Dict[str, Tuple[int, ...]]
_PARTS = ("x", "y", "sample_weight")
# Their elements lie on a device, and a function of the host would fetch them back.
_ON_DEVICE = frozenset({"_CopyToDeviceDataset", "_MapOnGpuDataset"})


class ShapeWatch:
    """Combinations of shapes in the order in which they are trained with.

    A pipeline prepares batches ahead of the step that takes them, so a new combination is told by its place: the pass
    over the data in which it came, and the number of its batch there.

    Attributes:
        reason: Why shapes are not seen; empty where they are.
        seen: All combinations that ``take`` has given: shapes by the name of a part, such as ``x`` or ``x.image``.
    """

    def __init__(self, names: tuple[str, ...] = (), reason: str = ""):
        self.reason = reason
        self.seen: list[Shapes] = []
        self._names = names
        self._known: set[bytes] = set()
        self._waiting: collections.deque[tuple[int, int, Shapes]] = collections.deque()
        self._passes_begun = self._pass = 0
        self._taken_batches = 0
        self._epoch_begins = True

    def begin_epoch(self) -> None:
        """The next batch is the first one of an epoch, and perhaps of a new pass over the data."""
        self._epoch_begins = True

    def advance(self, batches: int, first: int) -> bool:
        """So many batches were trained with; whether a new combination was among them.

        Args:
            batches: Their number.
            first: The number of the first of them in its epoch, which is not 0 where a fit goes on inside an epoch.
        """
        if self._epoch_begins:
            self._epoch_begins = False
            if self._pass != self._passes_begun:
                self._pass, self._taken_batches = self._passes_begun, first
        self._taken_batches += batches
        return bool(self._waiting) and self._waiting[0][:2] < (self._pass, self._taken_batches)

    def take(self) -> list[Shapes]:
        """Combinations that were new in the batches since the last call."""
        given = []
        while self._waiting and self._waiting[0][:2] < (self._pass, self._taken_batches):
            given.append(self._waiting.popleft()[2])
        self.seen += given
        return given

    def note(self, number: int, sizes: Any, ranks: Any) -> Any:
        """Notes the sizes of all dimensions of a batch, in one vector, and its number in its pass."""
        self._passes_begun += number == 0
        key = sizes.tobytes()
        if key not in self._known:
            ends = np.cumsum(ranks)
            parts = [tuple(int(size) for size in sizes[end - rank : end]) for rank, end in zip(ranks, ends)]
            self._waiting.append((self._passes_begun, number, dict(zip(self._names, parts))))
            self._known.add(key)
        return np.int32(0)


def watch(model: Any) -> ShapeWatch:
    """Sees the shapes of the running ``fit`` of a model from its next iterator on; from ``on_train_begin``."""
    variables = running_fit.local_variables(model) or {}
    holder, name = variables.get("epoch_iterator"), "_distributed_dataset"
    if holder is None:
        holder, name = variables.get("data_handler"), "_dataset"
    dataset = getattr(holder, name, None)
    if not isinstance(dataset, tf.data.Dataset):
        return ShapeWatch(reason="the data are divided by a strategy, or no data set")
    if any(type(each).__name__ in _ON_DEVICE for each in datasets.chain(dataset)):
        return ShapeWatch(reason="the batches lie on a device already")
    parts = [(label, part) for label, part in labelled(dataset.element_spec) if isinstance(part, tf.TensorSpec)]
    if any(part.shape.rank is None for _, part in parts) or not parts:
        return ShapeWatch(reason="a part of the data has no known rank")
    found = ShapeWatch(tuple(label for label, _ in parts))
    if all(part.shape.is_fully_defined() for _, part in parts):
        found.note(0, np.array([size for _, part in parts for size in part.shape], np.int32), _ranks(parts))
    else:
        setattr(holder, name, _tapped(dataset, found, _ranks(parts)))
    return found


def labelled(element: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an element or its spec with names: ``x``, ``y``, ``sample_weight``, and what is inside of them."""
    given = element if isinstance(element, tuple) and not hasattr(element, "_fields") else (element,)
    for number, part in enumerate(given):
        yield from _named(_PARTS[number] if number < len(_PARTS) else f"part {number}", part)


def _named(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        for key in sorted(part):
            yield from _named(f"{name}.{key}", part[key])
    elif isinstance(part, (list, tuple)):
        for number, each in enumerate(part):
            yield from _named(f"{name}[{number}]", each)
    elif part is not None:
        yield name, part


def _ranks(parts: Any) -> list[int]:
    return [int(part.shape.rank) for _, part in parts]


def _tapped(dataset: Any, found: ShapeWatch, ranks: list[int]) -> Any:
    def note(number: Any, sizes: Any) -> Any:
        return found.note(int(number), sizes, ranks)

    def look(number: Any, element: Any) -> Any:
        dense = [part for _, part in labelled(element) if isinstance(part, tf.Tensor)]
        sizes = tf.concat([tf.shape(part) for part in dense], axis=0)
        with tf.control_dependencies([tf.numpy_function(note, [number, sizes], tf.int32)]):
            return tf.nest.map_structure(tf.identity, element, expand_composites=True)

    return dataset.enumerate().map(look)
