"""Alarms of the loss, the loss scale and skipped steps: when, what is named, and what the weights are then."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, keras, tf
from tfvolta.errors import ConfigError, NoEffectError, NumericsError, NumericsWarning, PlanError
from tfvolta.evidence.reading import latest, read
from tfvolta.outcome import Status

POLICY = keras.config.set_dtype_policy if KERAS3 else keras.mixed_precision.set_global_policy
BATCH, BATCHES = 2, 6


@pytest.fixture
def _float16() -> Any:
    POLICY("mixed_float16")
    yield
    POLICY("float32")


def model(middle: Any = None, **compiled: Any) -> Any:
    small = keras.initializers.Constant(0.1)
    parts = [keras.layers.Dense(3, kernel_initializer=small, name="first"), middle or keras.layers.ReLU(name="middle")]
    last = keras.layers.Dense(1, kernel_initializer=small, dtype="float32", name="last")
    made = keras.Sequential([keras.Input((2,)), *parts, last])
    made.compile(keras.optimizers.SGD(0.001, momentum=0.5), "mse", **compiled)
    return made


def data(bad: Optional[int] = None, value: float = np.inf) -> tuple[Any, Any]:
    """Batches of ones, with one number of one batch replaced."""
    x = np.ones((BATCH * BATCHES, 2), "float32")
    if bad is not None:
        x[BATCH * bad, 0] = value
    return x, np.zeros((len(x), 1), "float32")


class Weights(keras.callbacks.Callback):
    """The weights after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.after: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.after.append(self.model.get_weights())


def fit(trained: Any, alarms: Any, x: Any, y: Any, epochs: int = 1) -> list[Any]:
    seen = Weights()
    callbacks = [seen, *alarms]
    trained.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return seen.after


@pytest.mark.usefixtures("_float16")
def test_a_bad_batch_stops_training_with_the_weights_before_it() -> None:
    trained, alarms = model(), tfvolta.callbacks.Alarms()
    with pytest.warns(NumericsWarning, match=r"inputs.*weights are those before the bad step.*Training stops"):
        after = fit(trained, [alarms], *data(bad=3), epochs=2)
    assert len(after) == 4
    for before, now in zip(after[2], trained.get_weights()):
        np.testing.assert_array_equal(before, now)
    (record,) = alarms.records
    assert (record["kind"], record["epoch"], record["batch"]) == ("nan_loss", 0, 3)
    assert record["culprit"]["kind"] == "inputs" and record["culprit"]["batches_ago"] == 0


@pytest.mark.usefixtures("_float16")
def test_the_layer_that_makes_an_infinity_in_float16_is_named() -> None:
    trained = model(keras.layers.Lambda(lambda x: tf.where(x > 5.0, x * 60000.0, x), name="middle"))
    alarms = tfvolta.callbacks.Alarms(nan_loss="raise")
    with pytest.raises(NumericsError, match=r"batch 2[\s\S]*activations, layer middle \(Lambda\)[\s\S]*float32_layers"):
        fit(trained, [alarms], *data(bad=2, value=100.0))


@pytest.mark.usefixtures("_float16")
def test_enormous_weights_blame_the_learning_rate_and_no_layer() -> None:
    trained = model()
    trained.optimizer.learning_rate = 1e30
    x, y = data()
    with pytest.raises(NumericsError, match="The largest weight is") as caught:
        fit(trained, [tfvolta.callbacks.Alarms(nan_loss="raise")], x + 1.0, y + 1.0)
    (problem,) = caught.value.problems
    assert "learning rate, which is 1e+30" in problem.fix and "float32" not in problem.fix


@pytest.mark.usefixtures("_float16")
def test_reports_go_on_and_come_once_an_epoch() -> None:
    trained, alarms = model(), tfvolta.callbacks.Alarms(nan_loss="report")
    with pytest.warns(NumericsWarning) as caught:
        after = fit(trained, [alarms], *data(bad=1), epochs=2)
    assert len(after) == 2 * BATCHES and len(alarms.records) == 2
    assert not any("stops" in str(each.message) for each in caught)


def test_without_loss_scaling_the_weights_are_damaged_and_the_layer_is_found_all_the_same() -> None:
    trained = model(keras.layers.Lambda(lambda x: tf.math.log(x + 1.0 - 1.0), name="middle"))
    x, y = data(bad=3, value=-5.0)
    alarms = tfvolta.callbacks.Alarms()
    with pytest.warns(NumericsWarning, match=r"weights are damaged.*Nothing scales the loss"):
        after = fit(trained, [alarms], x, y)
    assert len(after) == 4
    (record,) = alarms.records
    assert record["culprit"]["remembered_weights"] is True
    assert (record["culprit"]["kind"], record["culprit"]["layer"]) == ("activations", "middle")
    assert "has NaN" in record["weights"]


@pytest.mark.usefixtures("_float16")
@pytest.mark.parametrize("per_call", [1, 3])
def test_steps_skipped_in_a_row_and_a_scale_too_low(per_call: int) -> None:
    trained = model(steps_per_execution=per_call)
    x, y = data()
    x[2 * BATCH :] = np.inf
    row = tfvolta.callbacks.Alarms(nan_loss=None, max_skipped_in_row=3)
    with pytest.warns(NumericsWarning, match="3 steps in a row were skipped|4 steps in a row were skipped"):
        after = fit(trained, [row], x, y)
    assert len(after) == {1: 5, 3: 2}[per_call]
    for before, now in zip(after[1 if per_call == 1 else -1], trained.get_weights()):
        np.testing.assert_array_equal(before, now)
    low = tfvolta.callbacks.Alarms(nan_loss=None, min_loss_scale=40000.0, action="raise")
    with pytest.raises(NumericsError, match=r"the loss scale is [0-9]+, below 40000"):
        fit(trained, [low], x, y)


@pytest.mark.usefixtures("_float16")
def test_looking_seldom_keeps_the_bad_batch() -> None:
    trained, alarms = model(), tfvolta.callbacks.Alarms(every_steps=3)
    with pytest.warns(NumericsWarning, match=r"steps after the bad one.*were applied"):
        after = fit(trained, [alarms], *data(bad=1))
    assert len(after) == 3
    assert alarms.records[0]["culprit"]["batches_ago"] == 1 and alarms.records[0]["culprit"]["kind"] == "inputs"


@pytest.mark.usefixtures("_float16")
def test_moving_statistics_are_named_where_a_skipped_step_has_damaged_them() -> None:
    trained = model(keras.layers.BatchNormalization(name="middle"))
    with pytest.warns(NumericsWarning, match=r"before the bad step.*Other variables are damaged.*moving_mean"):
        fit(trained, [tfvolta.callbacks.Alarms()], *data(bad=2))


def test_a_config_puts_alarms_into_the_evidence(tmp_path: Path) -> None:
    config = tfvolta.load_config(
        run={"directory": str(tmp_path)},
        mixed_precision={"policy": "mixed_float16"},
        alarms={"nan_loss": "stop", "max_skipped_in_row": 50},
    )
    trained = model()
    with pytest.warns(NumericsWarning):
        fit(trained, tfvolta.build_callbacks(config), *data(bad=3))
    evidence = read(latest(tmp_path))
    assert evidence.outcomes["alarms"].status is Status.APPLIED
    assert "the loss is infinite" in evidence.outcomes["alarms"].message
    (alarm,) = evidence.measurements["alarms"]["alarms"]
    assert alarm["culprit"]["kind"] == "inputs" and alarm["weights"].startswith("The weights are those before")
    assert any("not finite first: inputs" in each for each in evidence.warnings)


def test_what_can_never_be_is_refused(tmp_path: Path) -> None:
    run = {"directory": str(tmp_path)}
    half = {"policy": "mixed_float16"}
    config = tfvolta.load_config(run=run, mixed_precision=half, alarms={"min_loss_scale": 1.0})
    with pytest.raises(PlanError, match="above the floor of the loss scale, 1"):
        tfvolta.build_callbacks(config)
    with pytest.raises(PlanError, match=r"set alarms\.nan_loss: stop"):
        tfvolta.build_callbacks(tfvolta.load_config(run=run, alarms={"every_steps": 2}))
    with pytest.raises(ConfigError, match="2 problems"):
        tfvolta.callbacks.Alarms(min_loss_scale=-1.0, nan_loss="shout")
    config = tfvolta.load_config(run=run, alarms={"max_skipped_in_row": 3})
    with pytest.raises(NoEffectError, match="Nothing scales the loss"):
        fit(model(), tfvolta.build_callbacks(config), *data())
