"""What one step does to a loss scale, the same on every Keras: bounds, hysteresis, and steps skipped in a row.

It is all in the traced step, so that it holds for every step of a call (``steps_per_execution``) and costs the host
nothing. The scale and the count of finite steps are Keras's own variables, which saved files hold. What is added here
is in no list of variables of a model or optimiser, so that plain Keras loads what was saved; a checkpoint of tfvolta's
has the count of tolerated overflows too.

The rules, of which Keras has the first two without bounds:

- ``growth_steps`` finite steps in a row double the scale, up to the ceiling, and restore the tolerance.
- A step with non-finite gradients is skipped and ends the row; it halves the scale, down to the floor.
- With hysteresis h the first h - 1 overflows are tolerated: they are skipped and leave the scale. From then on each one
  halves it, until the scale has grown, or would have. So one stray overflow costs a step and not half of the scale,
  while a scale that is much too large still falls quickly. Megatron-LM and DeepSpeed count in the same way.

Source: ``DynamicGradScaler.update`` of Megatron-LM; ``DynamicLossScaler.update_scale`` of DeepSpeed.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfvolta.bridge.either import either
from tfvolta.bridge.scale_bounds import KERAS_BOUNDS, ScaleBounds


class ScaleControl:
    """The bounds of one optimiser's loss scale, and what is counted beside it.

    Attributes:
        bounds: Floor, ceiling and hysteresis; read while a step is traced.
        overflows: Overflows tolerated since the scale last grew.
        in_row: Steps skipped since the last one that was applied.
        longest: The most of them since somebody has looked.
    """

    def __init__(self, strategy: Any, bounds: ScaleBounds = KERAS_BOUNDS):
        self.bounds = bounds
        with tf.init_scope(), strategy.scope():
            self.overflows = _counter("tolerated_overflows")
            self.in_row = _counter("skipped_in_row")
            self.longest = _counter("longest_skipped_row")

    def __deepcopy__(self, memo: dict[int, Any]) -> ScaleControl:
        return self  # a copied optimiser counts with the original

    def applied(self, scale: Any, finite_steps: Any, growth_steps: Any, fixed: bool = False) -> None:
        """A step was applied.

        Args:
            scale: Variable of the loss scale, Keras's own.
            finite_steps: Variable that counts finite steps since the scale's last change.
            growth_steps: How many of them double it.
            fixed: Whether the scale never changes.
        """
        self.in_row.assign(0)
        if fixed:
            return

        def grow() -> None:
            present = tf.convert_to_tensor(scale)
            doubled = self.bounded(present * 2.0)
            finite_steps.assign(0)
            self.overflows.assign(0)
            scale.assign(tf.where(tf.math.is_finite(doubled), doubled, present))

        def count() -> None:
            finite_steps.assign_add(1)

        # Not equality: fewer growth steps than were counted already, as after a resumed run, would never grow.
        either(tf.convert_to_tensor(finite_steps) + 1 >= growth_steps, grow, count)

    def skipped(self, scale: Any, finite_steps: Any, fixed: bool = False) -> None:
        """A step was skipped for non-finite gradients; the variables are those of ``applied``."""
        row = tf.convert_to_tensor(self.in_row) + 1
        self.longest.assign(tf.maximum(tf.convert_to_tensor(self.longest), row))
        self.in_row.assign(row)
        if fixed:
            return
        present = tf.convert_to_tensor(scale)
        seen = tf.minimum(tf.convert_to_tensor(self.overflows) + 1, self.bounds.hysteresis)
        halved = tf.where(seen >= self.bounds.hysteresis, self.bounded(present * 0.5), present)
        self.overflows.assign(seen)
        finite_steps.assign(0)
        scale.assign(halved)

    def bounded(self, scale: Any) -> Any:
        """A scale within the bounds."""
        scale = tf.maximum(scale, self.bounds.floor)
        return scale if self.bounds.ceiling is None else tf.minimum(scale, self.bounds.ceiling)

    def look(self) -> tuple[int, int]:
        """Steps skipped in a row now, and the most of them since the last look; reads the device."""
        in_row, longest = int(self.in_row.numpy()), int(self.longest.numpy())
        self.longest.assign(in_row)
        return in_row, longest


def _counter(name: str) -> Any:
    """A count that every replica keeps alike, as the loss scale itself."""
    return tf.Variable(0, dtype=tf.int64, trainable=False, name=name, aggregation=tf.VariableAggregation.NONE)
