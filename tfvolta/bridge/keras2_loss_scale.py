"""Loss scaling in Keras 2: installing it in a compiled model, reading it, and removing it."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge.base import LossScaleSettings, LossScaleState, SkippedRow, StepCounts
from tfvolta.bridge.keras2_functions import reset_functions
from tfvolta.bridge.keras2_package import Package
from tfvolta.bridge.keras2_saving import remember_optimizer
from tfvolta.bridge.keras2_scale_state import control_of, limit, set_bounds, set_fixed_scale, skipped_row, take_control
from tfvolta.bridge.keras2_step_count import CountingSteps, start_counting, step_counts
from tfvolta.bridge.scale_bounds import KERAS_BOUNDS
from tfvolta.errors import BridgeError, Problem

# What a loss-scale wrapper adds to the checkpoint dependencies of the optimiser inside.
_DEPENDENCIES = ("loss_scale", "base_optimizer")


class LossScalePart:
    """The part of the bridge that concerns the optimiser.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def scale_optimizer(self, optimizer: Any, settings: LossScaleSettings) -> Any:
        """The optimiser inside a loss-scale wrapper; one already wrapped gets the settings instead of a second wrapper.

        Args:
            optimizer: An optimiser, its name or its config, as ``compile`` takes it.
            settings: Dynamic or fixed scale.
        """
        optimizer = self.package.keras.optimizers.get(optimizer)
        if not isinstance(optimizer, self.package.scaler):
            optimizer = wrap(self.package, optimizer, settings)
        else:
            optimizer = self._adjust(optimizer, settings)[0]
        if settings.fixed is None and settings.bounds != KERAS_BOUNDS:
            take_control(self.package, optimizer, tf.distribute.get_strategy())
            set_bounds(optimizer, settings.bounds)
        return optimizer

    def install_loss_scale(self, model: Any, settings: LossScaleSettings) -> bool:
        """Wraps a compiled model's optimiser, keeps its slots and iterations, and makes saving remember it.

        A scale that has been in use is kept: ``settings.initial`` is for a run's first step only.

        Returns:
            False if the model had loss scaling with these settings already.

        Raises:
            BridgeError: The model has no optimiser.
        """
        if model.optimizer is None:
            raise BridgeError("There is no optimiser to scale the loss for.", [_no_optimizer(model)])
        with model.distribute_strategy.scope():
            if isinstance(model.optimizer, self.package.scaler):
                optimizer, changed = self._adjust(model.optimizer, settings)
            else:
                optimizer, changed = wrap(self.package, model.optimizer, settings), True
        counting = start_counting(self.package, optimizer, model.distribute_strategy)
        changed |= set_bounds(optimizer, settings.bounds)
        if optimizer is not model.optimizer:
            model.optimizer = optimizer
        remember_optimizer(model)
        if changed or counting:
            reset_functions(model)
        return changed

    def remove_loss_scale(self, model: Any) -> bool:
        """Puts the inner optimiser back, state kept; False where there was no wrapper."""
        if not isinstance(model.optimizer, self.package.scaler):
            return False
        model.optimizer = _unwrap(model.optimizer)
        remember_optimizer(model)
        reset_functions(model)
        return True

    def loss_scale(self, optimizer: Any) -> Optional[LossScaleState]:
        """Loss scale of an optimiser, or None where it has none."""
        if not isinstance(optimizer, self.package.scaler):
            return None
        scale = float(optimizer.loss_scale.numpy())
        if not optimizer.dynamic:
            return LossScaleState(scale=scale, dynamic=False)
        good_steps, control = int(optimizer.dynamic_counter.numpy()), control_of(optimizer)
        if control is None:
            return LossScaleState(scale=scale, dynamic=True, good_steps=good_steps)
        overflows = int(control.overflows.numpy()) if control.bounds.hysteresis > 1 else None
        return LossScaleState(scale, True, good_steps, control.bounds, overflows)

    def limit_loss_scale(self, model: Any) -> bool:
        """Brings a dynamic scale, restored perhaps from a file, within its bounds; False where it is there."""
        return isinstance(model.optimizer, self.package.scaler) and limit(model.optimizer)

    def scale_variable(self, optimizer: Any) -> Optional[Any]:
        """TensorFlow's variable of a loss scale that changes; None where there is none."""
        scaled = isinstance(optimizer, self.package.scaler) and optimizer.dynamic
        return optimizer._loss_scale.current_loss_scale if scaled else None

    def skipped_row(self, optimizer: Any) -> Optional[SkippedRow]:
        """Steps skipped in a row, in one device read; None where nothing counts them."""
        return skipped_row(self.package, optimizer)

    def step_counts(self, model: Any) -> Optional[StepCounts]:
        """Optimiser steps applied and skipped so far; reads device values, so not for every batch.

        Steps of an earlier run, restored from a file, count as applied.
        """
        return step_counts(self.package, model)

    def _adjust(self, optimizer: Any, settings: LossScaleSettings) -> tuple[Any, bool]:
        """Gives an existing wrapper the settings; the result may be another wrapper around the same optimiser."""
        if optimizer.dynamic != (settings.fixed is None):
            return wrap(self.package, _unwrap(optimizer), settings), True
        if settings.fixed is not None:
            changed = float(optimizer.initial_scale) != settings.fixed
            if changed and isinstance(optimizer, CountingSteps):
                set_fixed_scale(self.package, optimizer, settings.fixed)
            elif changed:
                optimizer._loss_scale = float(settings.fixed)
            return optimizer, changed
        state = optimizer._loss_scale
        wanted = (float(settings.initial), int(settings.growth_steps))
        changed = state._growth_steps != wanted[1]
        state._growth_steps = wanted[1]
        if int(optimizer.iterations.numpy()) == 0 and float(state.current_loss_scale.numpy()) != wanted[0]:
            state.current_loss_scale.assign(wanted[0])
            state._initial_loss_scale = wanted[0]
            changed = True
        return optimizer, changed


def wrap(package: Package, optimizer: Any, settings: LossScaleSettings) -> Any:
    """A new loss-scale wrapper around an optimiser, of the kind that fits its family."""
    if settings.fixed is not None:
        return package.scaler(optimizer, dynamic=False, initial_scale=settings.fixed)
    return package.scaler(optimizer, initial_scale=settings.initial, dynamic_growth_steps=settings.growth_steps)


def inside(package: Package, optimizer: Any) -> Any:
    """The optimiser inside a loss-scale wrapper, which stays around it; any other one itself."""
    return optimizer.inner_optimizer if isinstance(optimizer, package.scaler) else optimizer


def _unwrap(optimizer: Any) -> Any:
    """The optimiser inside a wrapper, as it was before: free to be wrapped again, with its own checkpoint format."""
    inner = optimizer.inner_optimizer
    inner._is_wrapped_by_loss_scale_optimizer = False
    inner._maybe_initialize_trackable()
    dependencies = inner._unconditional_checkpoint_dependencies
    for name in _DEPENDENCIES:
        if inner._unconditional_dependency_names.pop(name, None) is not None:
            dependencies[:] = [reference for reference in dependencies if reference.name != name]
    return inner


def _no_optimizer(model: Any) -> Problem:
    return Problem(
        where=f"{model.name}: optimizer",
        expected="a model compiled with an optimiser",
        received="model.optimizer is None",
        why="a train step that uses optimisers of its own has to scale its loss itself",
        fix="pass optimizer= to compile, or wrap the optimiser with scale_optimizer before the train step uses it",
    )
