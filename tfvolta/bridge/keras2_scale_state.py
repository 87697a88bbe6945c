"""Keras 2: the state of a loss scale, with bounds, hysteresis and a count of steps skipped in a row.

Keras keeps the scale in a ``_DynamicLossScaleState`` and asks its ``update`` once a step whether to apply it. The state
gets a class of the bridge's with another ``update``; its variables, and with them what is saved, stay Keras's own.

Source: keras/src/mixed_precision/loss_scale_optimizer.py of Keras 2.15.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Iterator, Optional

import tensorflow as tf

from tfvolta.bridge import gradients
from tfvolta.bridge.base import SkippedRow
from tfvolta.bridge.either import either
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.scale_bounds import ScaleBounds
from tfvolta.bridge.scale_control import ScaleControl

_CONTROL = "tfvolta_control"
_FINITE = "tfvolta_finite"


@functools.cache
def controlled_class(package: Package) -> Any:
    """The state of a scale with bounds; one whose multiplier is 1 is fixed.

    Keras's own fixed scale applies whatever gradients there are; here steps with non-finite ones are skipped.
    """

    class ControlledScale(package.loss_scale._DynamicLossScaleState):  # type: ignore[misc,name-defined]
        def update(self, grads: Any) -> Any:
            finite = _finite(tf.nest.flatten(grads))
            control: ScaleControl = vars(self)[_CONTROL]
            fixed = self.multiplier == 1

            def applied() -> None:
                control.applied(self.current_loss_scale, self.counter, self.growth_steps, fixed)

            def skipped() -> None:
                control.skipped(self.current_loss_scale, self.counter, fixed)

            either(finite, applied, skipped)
            selects = vars(self).get(_FINITE)
            if selects is None:
                return tf.no_op(), finite
            selects.append(finite)
            return tf.no_op(), True  # whether the step is applied is selected in there

    return ControlledScale


def _finite(grads: list[Any]) -> Any:
    """Whether gradients, which are sums over all replicas by now, are finite."""
    if not (tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()):
        return gradients.all_finite(grads)
    strategy = tf.distribute.get_strategy()
    each = strategy.extended.call_for_each_replica(gradients.all_finite, args=(grads,))
    return strategy.experimental_local_results(each)[0]


def take_control(package: Package, optimizer: Any, strategy: Any) -> bool:
    """Puts a wrapper's scale under control; False where it was so. The train step has to be traced anew."""
    state = optimizer._loss_scale
    if _CONTROL in getattr(state, "__dict__", {}):
        return False
    if not isinstance(state, package.loss_scale._DynamicLossScaleState):
        set_fixed_scale(package, optimizer, float(state))
        state = optimizer._loss_scale
    state.__class__ = controlled_class(package)
    vars(state)[_CONTROL] = ScaleControl(strategy)
    return True


@contextlib.contextmanager
def selecting(optimizer: Any) -> Iterator[None]:
    """Has a controlled wrapper apply its gradients unconditionally, for a step that selects what is written."""
    state = optimizer._loss_scale
    vars(state)[_FINITE] = []
    try:
        yield
    finally:
        del vars(state)[_FINITE]


def answer_of(optimizer: Any) -> Optional[Any]:
    """Whether the gradients of a step that selects are finite, as a tensor; None where the wrapper decides itself."""
    answers = getattr(optimizer._loss_scale, "__dict__", {}).get(_FINITE)
    return answers[-1] if answers else None


def set_fixed_scale(package: Package, optimizer: Any, scale: float) -> None:
    """Gives a wrapper a fixed scale; past tracking, because plain Keras saves no state of one."""
    former = control_of(optimizer)
    state = controlled_class(package)(scale, growth_steps=2**62, multiplier=1)
    vars(state)[_CONTROL] = former or ScaleControl(tf.distribute.get_strategy())
    optimizer.__dict__["_loss_scale"] = state


def control_of(optimizer: Any) -> Optional[ScaleControl]:
    """What controls a wrapper's scale; None where that is Keras alone."""
    control = getattr(vars(optimizer).get("_loss_scale"), "__dict__", {}).get(_CONTROL)
    return control if isinstance(control, ScaleControl) else None


def set_bounds(optimizer: Any, bounds: ScaleBounds) -> bool:
    """Gives a controlled scale other bounds, and brings it within them; False where it had them."""
    control = control_of(optimizer)
    if control is None or control.bounds == bounds:
        return False
    control.bounds = bounds
    limit(optimizer)
    return True


def limit(optimizer: Any) -> bool:
    """Brings a dynamic scale within its bounds; False where it is there."""
    control = control_of(optimizer)
    if control is None or optimizer._loss_scale.multiplier == 1:
        return False
    variable = optimizer._loss_scale.current_loss_scale
    present = float(variable.numpy())
    limited = control.bounds.limited(present)
    if limited != present:
        variable.assign(limited)
    return limited != present


def skipped_row(package: Package, optimizer: Any) -> Optional[SkippedRow]:
    """See ``tfvolta.bridge.base.Bridge.skipped_row``."""
    control = control_of(optimizer) if isinstance(optimizer, package.scaler) else None
    return None if control is None else SkippedRow(*control.look())


def hysteresis_state(package: Package, optimizer: Any) -> list[tuple[str, Any]]:
    """The count of tolerated overflows, by name, where there is a tolerance; no list of Keras's has it."""
    control = control_of(optimizer) if isinstance(optimizer, package.scaler) else None
    if control is None or control.bounds.hysteresis == 1:
        return []
    return [("loss_scale/tolerated_overflows", control.overflows)]
