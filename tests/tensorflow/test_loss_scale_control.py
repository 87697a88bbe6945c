"""Floor, ceiling and hysteresis of a loss scale, inside the traced step, on every stack."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow import scale_models as models
from tfvolta import precision
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings, SkippedRow, StepCounts
from tfvolta.bridge.scale_bounds import ScaleBounds
from tfvolta.errors import ConfigError

BRIDGE = bridge_for_stack(STACK)
G, B = True, False
# Growth after 3 finite steps; the ceiling is met, the tolerance used up, restored by growth and used again.
STEPS = [B, G, B, B, G, G, G, G, G, G, G, G, G, B, B, B, B, B, B, G, B, G, G, G]
BOUNDS = ScaleBounds(floor=4.0, ceiling=64.0, hysteresis=2)


def optimizers() -> dict[str, Any]:
    found = {"new": lambda: keras.optimizers.SGD(0.0)}
    if not KERAS3:
        found["legacy"] = lambda: keras.optimizers.legacy.SGD(0.0)
    return found


def scaled(bounds: ScaleBounds, initial: float = 32.0, **arguments: Any) -> Any:
    model = models.model(**arguments)
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial, 3, None, bounds))
    return model


@pytest.mark.parametrize("kind", optimizers())
@pytest.mark.parametrize("per_call", [1, 6])
def test_every_step_of_a_call_follows_the_rules(kind: str, per_call: int) -> None:
    model = scaled(BOUNDS, optimizer=optimizers()[kind](), steps_per_execution=per_call)
    expected = models.Expected(32.0, 3, BOUNDS)
    for first in range(0, len(STEPS), 12):
        models.fit(model, STEPS[first : first + 12])
        expected.steps(STEPS[first : first + 12])
        state = BRIDGE.loss_scale(model.optimizer)
        assert (state.scale, state.good_steps, state.overflows) == (expected.scale, expected.good, expected.overflows)
    assert BRIDGE.step_counts(model) == StepCounts(applied=STEPS.count(G), skipped=STEPS.count(B))
    assert BRIDGE.skipped_row(model.optimizer) == SkippedRow(now=0, longest=6)
    assert BRIDGE.skipped_row(model.optimizer) == SkippedRow(now=0, longest=0)


def test_the_floor_and_the_ceiling_are_met_and_kept() -> None:
    model = scaled(ScaleBounds(floor=8.0, ceiling=100.0))
    models.fit(model, [B] * 5)
    assert BRIDGE.loss_scale(model.optimizer).scale == 8.0
    models.fit(model, [G] * 15)
    assert BRIDGE.loss_scale(model.optimizer).scale == 100.0
    assert BRIDGE.skipped_row(model.optimizer) == SkippedRow(now=0, longest=5)


def test_other_bounds_bring_a_used_scale_within_them_and_are_traced_anew() -> None:
    model = scaled(ScaleBounds())
    models.fit(model, [B, B, B])
    assert BRIDGE.loss_scale(model.optimizer).scale == 4.0
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(32.0, 3, None, ScaleBounds(floor=16.0))) is True
    assert BRIDGE.loss_scale(model.optimizer).scale == 16.0
    models.fit(model, [B])
    assert BRIDGE.loss_scale(model.optimizer).scale == 16.0
    assert BRIDGE.install_loss_scale(model, LossScaleSettings(32.0, 3, None, ScaleBounds(floor=16.0))) is False


def test_fewer_growth_steps_than_were_counted_already_still_grow() -> None:
    model = scaled(ScaleBounds())
    BRIDGE.install_loss_scale(model, LossScaleSettings(32.0, 100, None))
    models.fit(model, [G] * 10)
    BRIDGE.install_loss_scale(model, LossScaleSettings(32.0, 4, None))
    models.fit(model, [G])
    assert BRIDGE.loss_scale(model.optimizer).scale == 64.0


def test_a_fixed_scale_stays_and_counts_what_it_skips() -> None:
    model = models.model()
    BRIDGE.install_loss_scale(model, LossScaleSettings(fixed=8.0))
    models.fit(model, [B, B, G, B])
    assert BRIDGE.loss_scale(model.optimizer).scale == 8.0
    assert BRIDGE.skipped_row(model.optimizer) == SkippedRow(now=1, longest=2)


def test_a_windows_updates_are_what_counts() -> None:
    model = scaled(ScaleBounds(floor=16.0, hysteresis=2))
    BRIDGE.set_reduction(model, every=2)
    models.fit(model, [G, B, B, G, B, B])  # three updates, none finite
    assert BRIDGE.loss_scale(model.optimizer).scale == 16.0  # the floor, after one that was tolerated
    assert BRIDGE.step_counts(model) == StepCounts(applied=0, skipped=3)


@pytest.mark.parametrize("graph", [False, True])
def test_loops_of_ones_own_have_bounds_too(graph: bool) -> None:
    variable = keras.Variable(1.0) if KERAS3 else tf.Variable(1.0)
    optimizer = precision.loss_scale_optimizer(keras.optimizers.SGD(0.0), 32.0, 3, bounds=BOUNDS)

    def step(value: Any) -> None:
        precision.apply_gradients(optimizer, [(value * 1.0, variable)])

    run = tf.function(step) if graph else step
    for finite in STEPS:
        run(tf.constant(1.0 if finite else np.inf))
    assert precision.current_scale(optimizer) == models.Expected(32.0, 3, BOUNDS).steps(STEPS).scale


@pytest.mark.parametrize(
    ("initial", "bounds", "says"),
    [
        (32.0, ScaleBounds(floor=0.0), "bounds.floor"),
        (32.0, ScaleBounds(floor=8.0, ceiling=4.0), "floor <= initial <= ceiling"),
        (2.0, ScaleBounds(floor=8.0), "floor <= initial <= ceiling"),
        (32.0, ScaleBounds(ceiling=-1.0, hysteresis=0), "bounds.hysteresis"),
    ],
)
def test_bounds_that_hold_nothing_are_refused(initial: float, bounds: ScaleBounds, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        precision.loss_scale_optimizer(keras.optimizers.SGD(0.0), initial, bounds=bounds)


class CrashError(Exception):
    """Ends a fit as a fault would."""


class Crash(keras.callbacks.Callback):
    """Crashes when an epoch begins."""

    def __init__(self, epoch: int):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            raise CrashError


def run_of_a_config(folder: Path, crash: int, **scale: Any) -> Any:
    """Three epochs with checkpoints; the first batch of each overflows."""
    config = tfvolta.load_config(
        run={"directory": str(folder / "runs")},
        mixed_precision={"policy": "mixed_float16", "loss_scale": {"growth_steps": 1000, "hysteresis": 2, **scale}},
        checkpoint={"directory": str(folder / "checkpoints")},
    )
    dense = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2)]
    model = keras.Sequential([keras.Input((1,)), *dense])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    callbacks = [*tfvolta.build_callbacks(config), Crash(crash)]
    with contextlib.suppress(CrashError):
        models.fit(model, [B, G, G], epochs=3, callbacks=callbacks)
    return BRIDGE.loss_scale(model.optimizer)


def test_scale_and_tolerance_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    first = run_of_a_config(tmp_path, crash=1, initial=32.0)
    assert (first.scale, first.good_steps, first.overflows) == (32.0, 2, 1)
    # Restored as 32 and brought to 8; the tolerance was used up before the checkpoint, so an overflow halves it.
    second = run_of_a_config(tmp_path, crash=2, initial=8.0, ceiling=8.0)
    assert (second.scale, second.good_steps, second.overflows) == (4.0, 2, 2)
