"""Figures of a model's gradients in some steps, at no cost in the others.

A model that is watched has two train functions: the plain one, and one that is traced with the figures in it and run
for the steps that are looked at. A condition inside one function would cost less memory for graphs; but its predicate
has to come to the host in every step, in XLA too, and every gradient would lead into it. The plain function is what
it would be without.

Figures are worked out from gradients as the optimiser is given them: summed over replicas or ranks, averaged over a
window, before the optimiser clips, decays weights or looks for infinities. They are divided by the loss scale where
this Keras has not done so yet.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Optional

import tensorflow as tf

from tfvolta.bridge.gradient_records import (
    FLOAT16_LARGEST,
    FLOAT16_NORMAL,
    FLOAT16_SUBNORMAL,
    GradientFigures,
    GradientSample,
)
from tfvolta.bridge.window import in_xla, key_of, own_variable

_Key = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Size:
    """In what size gradients are.

    Attributes:
        loss_scale: Present loss scale; None where the loss is not scaled.
        carried: Whether they are those of the scaled loss.
    """

    loss_scale: Optional[Any] = None
    carried: bool = False


TRUE_SIZE = Size()


class GradientWatch:
    """Which steps of a fit are looked at, and what was seen.

    Attributes:
        every: Steps from one to the next.
        active: Whether anybody wants the figures.
    """

    def __init__(self, every: int):
        self.every = every
        self.active = False
        self._batches = 0
        self._due = False
        self._taken: Optional[int] = None
        # A step may call several optimisers, each with variables of its own.
        self._seen: dict[_Key, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientWatch:
        return self

    def restart(self) -> None:
        """Begins a fit: its first step is looked at."""
        self.active, self._batches, self._due, self._taken = True, 0, False, None

    def begin_call(self, batches: int) -> bool:
        """Takes note of a call of so many batches; whether it is to be looked at."""
        # The last step of a call is what is seen of it, and a window's batches before its update have no gradients.
        self._due |= self._batches % self.every == 0 or self._batches // self.every < (
            (self._batches + batches - 1) // self.every
        )
        self._batches += batches
        return self.active and self._due

    def end_call(self, updated: bool) -> None:
        """Takes note that a call that was looked at has ended, with or without an update."""
        if updated:
            self._due, self._taken = False, self._batches

    def note(self, gradients: list[Any], variables: list[Any], size: Size) -> None:
        """Puts the figures of gradients where ``sample`` finds them; in replica context."""
        key = tuple(map(key_of, variables))
        if not key:
            return
        rows = [_figures(gradient, variable, size) for gradient, variable in zip(gradients, variables)]
        if key not in self._seen:
            self._seen[key] = own_variable((len(key), len(rows[0])), tf.float32, "gradient_figures")
        self._seen[key].assign(tf.stack([tf.stack(row) for row in rows]))

    def sample(self, strategy: Any, owners: Callable[[], Mapping[Any, str]]) -> Optional[GradientSample]:
        """What was seen since it was last asked for, which waits for the device; None where nothing was.

        Args:
            strategy: The model's.
            owners: Gives the path of the layer that owns each variable, by ``window.key_of``.
        """
        step, self._taken = self._taken, None
        if step is None:
            return None
        names = owners()
        found, scale = [], 0.0
        for key, variable in self._seen.items():
            values = strategy.experimental_local_results(variable)[0].numpy()
            for unique, row in zip(key, values):
                figures = [float(each) for each in row]
                scale = figures.pop()
                found.append((names.get(unique, ""), _record(figures)))
        return GradientSample(step, scale or None, tuple(found))


def _record(row: list[float]) -> GradientFigures:
    elements, largest, squares, *counts = row
    return GradientFigures(round(elements), largest, squares, *map(round, counts))


def _figures(gradient: Any, variable: Any, size: Size) -> list[Any]:
    """The fields of ``GradientFigures`` in order, and the loss scale or zero; scalar float32 tensors."""
    values = tf.cast(_merged(gradient), tf.float32)
    elements = math.prod(int(length) for length in variable.shape)
    scale = tf.constant(1.0) if size.loss_scale is None else tf.cast(size.loss_scale, tf.float32)
    finite = tf.math.is_finite(values)
    true = tf.abs(values / scale if size.carried else values)
    in_float16 = tf.abs(values if size.carried else values * scale)
    magnitudes = tf.where(finite, true, tf.zeros_like(true))
    largest = tf.reduce_max(tf.concat([tf.reshape(magnitudes, [-1]), [0.0]], 0))
    units = magnitudes / tf.where(largest > 0, largest, tf.ones_like(largest))
    absent = tf.cast(elements, tf.float32) - tf.cast(tf.size(values), tf.float32)  # rows that no slice names
    below = tf.logical_and(in_float16 > 0, in_float16 < FLOAT16_SUBNORMAL)
    partly = tf.logical_and(in_float16 >= FLOAT16_SUBNORMAL, in_float16 < FLOAT16_NORMAL)
    above = tf.logical_and(finite, in_float16 > FLOAT16_LARGEST)
    return [
        tf.constant(float(elements)),
        largest,
        tf.reduce_sum(tf.square(units)),
        _count(tf.equal(values, 0.0)) + absent,
        *map(_count, (below, partly, above, tf.logical_not(finite))),
        tf.constant(0.0) if size.loss_scale is None else scale,
    ]


def _count(flags: Any) -> Any:
    return tf.cast(tf.math.count_nonzero(flags), tf.float32)


def _merged(gradient: Any) -> Any:
    """Values of a gradient; of slices each row once, or all of them where XLA has to know how many."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.convert_to_tensor(gradient)
    if in_xla():
        return tf.convert_to_tensor(gradient)
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
