"""Keras 3: loss scaling put around an optimiser that may be built and trained already.

A fixed scale is a ``LossScaleOptimizer`` that never grows and, here, never falls. Keras's own fixed scale,
``loss_scale_factor`` on the optimiser, was not taken: it applies non-finite gradients, and plain Keras drops it when
it loads a model under mixed_float16, because ``compile`` then puts a dynamic wrapper around the optimiser.
"""

from __future__ import annotations

from typing import Any, Optional

import keras
from keras.src.utils.tracking import DotNotTrackScope

from tfvolta.bridge import keras3_functions, keras3_guard, keras3_saving
from tfvolta.bridge.base import LossScaleSettings, LossScaleState, SkippedRow, StepCounts
from tfvolta.errors import BridgeError, Problem

_Wrapper = keras.optimizers.LossScaleOptimizer


def scale_optimizer(optimizer: Any, settings: LossScaleSettings) -> Any:
    """See ``tfvolta.bridge.base.Bridge.scale_optimizer``; a name or a config of an optimiser is taken too."""
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, _Wrapper):
        _set(optimizer, settings)
        keras3_guard.install(optimizer)
        keras3_guard.set_bounds(optimizer, settings.bounds)
        return optimizer
    former = optimizer.loss_scale_factor
    with optimizer._distribution_strategy.scope():
        wrapper = _Wrapper(optimizer, **_arguments(settings))
    keras3_guard.install(wrapper, former)
    keras3_guard.set_bounds(wrapper, settings.bounds)
    return wrapper


def install_loss_scale(model: Any, settings: LossScaleSettings) -> bool:
    """See ``tfvolta.bridge.base.Bridge.install_loss_scale``."""
    optimizer = _optimizer(model)
    if isinstance(optimizer, _Wrapper):
        changed = _set(optimizer, settings)
        changed |= keras3_guard.install(optimizer)
        changed |= keras3_guard.set_bounds(optimizer, settings.bounds)
        changed |= keras3_saving.argument(model, "optimizer") is not optimizer
    else:
        optimizer, changed = scale_optimizer(optimizer, settings), True
        _assign(model, optimizer)
    _build(model, optimizer)
    if changed:
        keras3_saving.refresh(model, optimizer=optimizer)
        keras3_functions.reset(model)
    return changed


def remove_loss_scale(model: Any) -> bool:
    """See ``tfvolta.bridge.base.Bridge.remove_loss_scale``."""
    wrapper = _optimizer(model)
    if not isinstance(wrapper, _Wrapper):
        return False
    guard = keras3_guard.remove(wrapper)
    inner = wrapper.inner_optimizer
    if guard is not None:
        inner.loss_scale_factor = guard.former_factor
    _assign(model, inner)
    keras3_saving.refresh(model, optimizer=inner)
    keras3_functions.reset(model)
    return True


def loss_scale(optimizer: Any) -> Optional[LossScaleState]:
    """See ``tfvolta.bridge.base.Bridge.loss_scale``; one or two device reads."""
    if optimizer is None:
        return None
    if not isinstance(optimizer, _Wrapper):
        factor = getattr(optimizer, "loss_scale_factor", None)
        return None if factor is None else LossScaleState(scale=float(factor), dynamic=False)
    fixed = keras3_guard.is_fixed(optimizer)
    if not optimizer.built:
        return LossScaleState(float(optimizer.initial_scale), dynamic=not fixed, good_steps=None if fixed else 0)
    scale, guard = float(optimizer.dynamic_scale.numpy()), keras3_guard.guard_of(optimizer)
    if fixed or guard is None:
        return LossScaleState(scale, not fixed, None if fixed else int(optimizer.step_counter.numpy()))
    overflows = int(guard.control.overflows.numpy()) if guard.control.bounds.hysteresis > 1 else None
    good_steps = int(optimizer.step_counter.numpy())
    return LossScaleState(scale, True, good_steps, guard.control.bounds, overflows)


def skipped_row(optimizer: Any) -> Optional[SkippedRow]:
    """See ``tfvolta.bridge.base.Bridge.skipped_row``."""
    guard = keras3_guard.guard_of(optimizer) if isinstance(optimizer, _Wrapper) else None
    return None if guard is None else SkippedRow(*guard.control.look())


def scale_variable(optimizer: Any) -> Optional[Any]:
    """See ``tfvolta.bridge.base.Bridge.scale_variable``."""
    variable = getattr(optimizer, "dynamic_scale", None) if isinstance(optimizer, _Wrapper) else None
    return None if variable is None or keras3_guard.is_fixed(optimizer) else variable.value


def limit(optimizer: Any) -> bool:
    """See ``tfvolta.bridge.base.Bridge.limit_loss_scale``."""
    return isinstance(optimizer, _Wrapper) and keras3_guard.limit(optimizer)


def hysteresis_state(optimizer: Any) -> list[tuple[str, Any]]:
    """The count of tolerated overflows, by name, where there is a tolerance; no list of Keras's has it."""
    guard = keras3_guard.guard_of(optimizer) if isinstance(optimizer, _Wrapper) else None
    if guard is None or guard.control.bounds.hysteresis == 1:
        return []
    return [("loss_scale/tolerated_overflows", guard.control.overflows)]


def step_counts(model: Any) -> Optional[StepCounts]:
    """See ``tfvolta.bridge.base.Bridge.step_counts``; two device reads.

    ``applied`` goes on over a saved model; ``skipped`` counts since the guard was installed. With gradient accumulation
    ``applied`` counts updates and ``skipped`` counts micro-batches.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    applied = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if not isinstance(optimizer, _Wrapper):
        return StepCounts(applied, skipped=0)  # without a wrapper Keras 3 skips nothing
    guard = keras3_guard.guard_of(optimizer)
    return StepCounts(applied, None if guard is None else int(guard.skipped.numpy()))


def _arguments(settings: LossScaleSettings) -> dict[str, Any]:
    if settings.fixed is not None:
        return {"initial_scale": float(settings.fixed), "dynamic_growth_steps": keras3_guard.NEVER}
    return {"initial_scale": float(settings.initial), "dynamic_growth_steps": int(settings.growth_steps)}


def _set(wrapper: Any, settings: LossScaleSettings) -> bool:
    """Gives a wrapper other settings; a dynamic scale that has trained goes on from where it is."""
    wanted = _arguments(settings)
    present = {name: getattr(wrapper, name) for name in wanted}
    if wanted == present:
        return False
    was_fixed = keras3_guard.is_fixed(wrapper)
    for name, value in wanted.items():
        setattr(wrapper, name, value)
    untrained = int(keras.ops.convert_to_numpy(wrapper.iterations)) == 0
    # The variable is there before ``build`` where a custom loop asked for it.
    if getattr(wrapper, "dynamic_scale", None) is not None and (untrained or was_fixed or settings.fixed is not None):
        wrapper.dynamic_scale.assign(wanted["initial_scale"])
        wrapper.step_counter.assign(0)
    return True


def _build(model: Any, wrapper: Any) -> None:
    """Creates the wrapper's variables and leaves the inner optimiser's as they are.

    Keras's optimisers return early from a second ``build``; a user's own need not, and would lose their slots.
    """
    inner = wrapper.inner_optimizer
    if wrapper.built or not (inner.built or (model.built and model.trainable_variables)):
        return
    with inner._distribution_strategy.scope():
        if not inner.built:
            wrapper.build(model.trainable_variables)
            return
        inner.__dict__["build"] = lambda variables: None
        try:
            wrapper.build(list(inner._trainable_variables))
        finally:
            del inner.__dict__["build"]


def _assign(model: Any, optimizer: Any) -> None:
    with DotNotTrackScope():  # as in Trainer.compile
        model.optimizer = optimizer


def _optimizer(model: Any) -> Any:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise BridgeError(
            "The model has no optimiser.",
            [
                Problem(
                    where=f"model {getattr(model, 'name', model)}",
                    expected="a compiled model with an optimiser",
                    received="no compile call" if not getattr(model, "compiled", False) else "optimizer=None",
                    why="loss scaling is put around the optimiser",
                    fix="call model.compile(optimizer=...) before",
                )
            ],
        )
    return optimizer
