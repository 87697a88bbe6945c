"""Counting applied and skipped optimiser steps of Keras 2 inside the graph, at no cost to the host.

Keras 2 advances ``iterations`` on a step that it skips for an overflow, so the two cannot be told apart afterwards.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.base import StepCounts
from tfvolta.bridge.either import either
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_saving import warn_of_hdf5
from tfvolta.bridge.keras2_scale_state import answer_of, control_of, selecting, take_control
from tfvolta.bridge.tensorflow_private import in_xla_context

_ATTEMPTED = "tfvolta_attempted"
_APPLIED = "tfvolta_applied"


class CountingSteps:
    """Mixed into a loss-scale wrapper: counts the steps that it tries and those that it applies.

    The counters are in the instance's ``__dict__`` past TensorFlow's tracking, so that checkpoints stay those of plain
    Keras. They are absent from an instance that was made from a config.
    """

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the wrapper does, and counts the attempt."""
        _increment(self, _ATTEMPTED)
        if not _selects(self):
            return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]
        with selecting(self):
            return super().apply_gradients(grads_and_vars, *args, **kwargs)  # type: ignore[misc]

    def _apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Called by the wrapper only for finite gradients, or where what is written is selected here."""
        finite = answer_of(self)
        if finite is None:
            _increment(self, _APPLIED)
            return super()._apply_gradients(*args, **kwargs)  # type: ignore[misc]
        apply = super()._apply_gradients  # type: ignore[misc]

        def taken() -> None:
            _increment(self, _APPLIED)
            apply(*args, **kwargs)

        def otherwise() -> None:
            self.iterations.assign_add(1, read_value=False)  # type: ignore[attr-defined]

        either(finite, taken, otherwise)
        return tf.no_op()

    @property
    def dynamic(self) -> bool:
        """Whether the scale changes."""
        return getattr(self._loss_scale, "multiplier", 1) != 1  # type: ignore[attr-defined]

    @property
    def dynamic_counter(self) -> Any:
        """Finite steps since the scale's last change; None where it does not change."""
        return super().dynamic_counter if self.dynamic else None  # type: ignore[misc]

    @property
    def dynamic_growth_steps(self) -> Any:
        """Finite steps after which the scale grows; None where it does not."""
        return super().dynamic_growth_steps if self.dynamic else None  # type: ignore[misc]

    def get_config(self) -> dict[str, Any]:
        """The wrapper's config with the current loss scale for the initial one: Keras 2 saves no other."""
        warn_of_hdf5(self)
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        config["initial_scale"] = float(self.loss_scale)  # type: ignore[attr-defined]
        return config


def _selects(optimizer: Any) -> bool:
    """Whether the step is one of XLA's, which selects what is written (``tfvolta.bridge.either``)."""
    alone = tf.__internal__.distribute.strategy_supports_no_merge_call()
    return alone and control_of(optimizer) is not None and in_xla_context()


def _increment(optimizer: Any, name: str) -> None:
    counter = optimizer.__dict__.get(name)
    if counter is not None:
        counter.assign_add(1, read_value=False)


@functools.cache
def counting_class(base: Any) -> Any:
    """A subclass of a loss-scale wrapper that counts, and that is saved under the wrapper's own name and module."""
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base)(base.__name__, (CountingSteps, base), names)


def start_counting(package: Package, optimizer: Any, strategy: Any) -> bool:
    """Makes a loss-scale wrapper count its steps; False where it does already. The train step has to be traced anew."""
    if not isinstance(optimizer, CountingSteps):
        optimizer.__class__ = counting_class(optimizer.__class__)
    if _ATTEMPTED in optimizer.__dict__:
        return False
    with tf.init_scope(), strategy.scope():
        take_control(package, optimizer, strategy)
        for name in (_ATTEMPTED, _APPLIED):
            optimizer.__dict__[name] = tf.Variable(
                0, name=name, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
    return True


def step_counts(package: Package, model: Any) -> Optional[StepCounts]:
    """Applied and skipped steps of a model's optimiser.

    Steps before the counters were there (of an earlier run, or without loss scaling) count as applied; how many of a
    restored run's steps were skipped is in no checkpoint.
    """
    optimizer = model.optimizer
    if optimizer is None or not hasattr(optimizer, "iterations"):
        return None
    iterations = int(optimizer.iterations.numpy())
    scaled = isinstance(optimizer, package.scaler)
    if not scaled or _ATTEMPTED not in optimizer.__dict__:
        skips = scaled and optimizer.dynamic  # Keras's own fixed scale applies every step
        return StepCounts(applied=iterations, skipped=None if skips else 0)
    attempted, applied = (int(optimizer.__dict__[name].numpy()) for name in (_ATTEMPTED, _APPLIED))
    return StepCounts(applied=iterations - (attempted - applied), skipped=attempted - applied)
