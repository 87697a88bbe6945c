"""A last batch that is filled up trains as the smaller one does: same loss, gradients, metrics and counts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, keras, tf
from tests.tensorflow.test_xla_remainder import FIT, run_script
from tfvolta.bridge import bridge_for
from tfvolta.data import padded_batches
from tfvolta.errors import ConfigError, NoEffectError
from tfvolta.outcome import Status

ROOT = pathlib.Path(__file__).parents[2]
SMALL = FIT.replace("plain()", "keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])")
ROWS, BATCH = 22, 8  # a last batch of 6


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape).astype("float32")


def two_heads() -> Any:
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2")(inputs)
    heads = [keras.layers.Dense(1, name="a")(hidden), keras.layers.Dense(2, activation="softmax", name="b")(hidden)]
    return keras.Model(inputs, dict(zip("ab", heads)))


def plain() -> Any:
    layers = [keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((3,)), *layers])


def steps() -> Any:
    return keras.Sequential([keras.Input((5, 3)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])


def trained(make: Any, data: Any, pad: bool, jit: bool = False, **compiled: Any) -> tuple[dict[str, Any], list[Any]]:
    """History and weights of two epochs with the smaller batch, or with it filled up."""
    keras.utils.set_random_seed(3)
    model = make()
    model.compile(keras.optimizers.SGD(0.3), jit_compile=jit, **compiled)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    if pad:
        dataset = padded_batches(dataset, model)
        assert {int(part.shape[0]) for part in tf.nest.flatten(dataset.element_spec)} == {BATCH}
    validation = tf.data.Dataset.from_tensor_slices(data).batch(5)
    history = model.fit(dataset, epochs=2, verbose=0, validation_data=validation).history
    assert bridge_for(model).examples_seen(model) == len(tf.nest.flatten(data)[0])
    return history, model.get_weights()


def same(first: tuple[dict[str, Any], list[Any]], second: tuple[dict[str, Any], list[Any]]) -> None:
    assert first[0].keys() == second[0].keys()
    for name, values in first[0].items():
        np.testing.assert_allclose(values, second[0][name], rtol=2e-5, atol=1e-6, err_msg=name)
    for former, latter in zip(first[1], second[1]):
        np.testing.assert_allclose(former, latter, rtol=2e-5, atol=1e-6)


def given(weights: bool) -> tuple[Any, ...]:
    x, y = numbers(ROWS, 3), numbers(ROWS, 1, seed=1)
    weight = numbers(ROWS, seed=2) * 3
    weight[-1] = 0.0  # of a true row, which counts as a row all the same
    return (x, y, weight) if weights else (x, y)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_one_output(weights: bool, jit: bool) -> None:
    def metrics() -> dict[str, Any]:
        auc = keras.metrics.AUC(num_thresholds=5, name="auc")
        weighted = keras.metrics.MeanSquaredError(name="weighted")
        return {"metrics": ["mae", keras.metrics.RootMeanSquaredError(), auc], "weighted_metrics": [weighted]}

    same(*[trained(plain, given(weights), pad, jit, loss="mse", **metrics()) for pad in (False, True)])


def test_several_outputs_with_weights_of_their_own() -> None:
    x = numbers(ROWS, 3)
    y = {"a": numbers(ROWS, 1, seed=1), "b": (numbers(ROWS, seed=2) > 0.5).astype("int32")}
    weights = {"a": numbers(ROWS, seed=4), "b": numbers(ROWS, seed=5)}
    arguments: dict[str, Any] = {
        "loss": {"a": "mse", "b": "sparse_categorical_crossentropy"},
        "loss_weights": {"a": 1.0, "b": 0.3},
    }
    arguments["metrics"] = {"a": ["mae"], "b": ["accuracy"]}
    runs = [trained(two_heads, (x, y, weights), pad, **arguments) for pad in (False, True)]
    if KERAS3:  # which takes the mean over batches, and not over rows, where it does not know their number
        runs = [({name: log[name] for name in log if name not in ("a_loss", "b_loss")}, held) for log, held in runs]
    same(*runs)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
def test_values_for_each_step_of_a_sequence(reduction: str) -> None:
    data = numbers(ROWS, 5, 3), numbers(ROWS, 5, 1, seed=1), numbers(ROWS, 5, seed=2)
    runs = [
        trained(steps, data, pad, loss=keras.losses.MeanSquaredError(reduction=reduction), metrics=["mae"])
        for pad in (False, True)
    ]
    same(*runs)


def test_the_filled_rows_would_be_seen_without_their_weights() -> None:
    """The comparison can fail: rows that are merely repeated change the loss."""
    x, y = given(False)
    repeated = np.concatenate([x, x[-1:], x[-1:]]), np.concatenate([y, y[-1:], y[-1:]])
    first, second = trained(plain, (x, y), False, loss="mse"), trained(plain, repeated, False, loss="mse")
    assert not np.allclose(first[0]["loss"], second[0]["loss"], rtol=1e-4)


@pytest.mark.parametrize(
    ("layer", "compiled", "said"),
    [
        (lambda: keras.layers.BatchNormalization(), {"loss": "mse"}, "BatchNormalization.*statistics"),
        (lambda: keras.layers.Dense(3, activity_regularizer="l2"), {"loss": "mse"}, "activity regularizer"),
        (lambda: keras.layers.Dense(3), {"loss": lambda y, p: tf.reduce_mean(y - p)}, "one value for each row"),
        (lambda: keras.layers.Dense(3), {"loss": "mse", "metrics": [lambda y, p: 1.0]}, "rows' weights"),
    ],
)
def test_what_would_see_filled_rows_is_refused(layer: Any, compiled: dict[str, Any], said: str) -> None:
    model = keras.Sequential([keras.Input((3,)), layer(), keras.layers.Dense(1)])
    model.compile("sgd", **compiled)
    dataset = tf.data.Dataset.from_tensor_slices(given(False)).batch(BATCH)
    with pytest.raises(ConfigError, match=f"(?s){said}.*static_batches"):
        padded_batches(dataset, model)


def test_frozen_statistics_are_no_obstacle() -> None:
    norm = keras.layers.BatchNormalization(trainable=False)
    model = keras.Sequential([keras.Input((3,)), norm, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    padded_batches(tf.data.Dataset.from_tensor_slices(given(False)).batch(BATCH), model)


def test_a_train_step_of_ones_own_is_refused() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs

        def train_step(self, data: Any) -> Any:
            return {}

    model = Own()
    model.compile("sgd", "mse")
    with pytest.raises(ConfigError, match="train_step is not Keras's"):
        padded_batches(tf.data.Dataset.from_tensor_slices(given(False)).batch(BATCH), model)


def test_data_without_targets_are_refused() -> None:
    model = plain()
    model.compile("sgd", "mse")
    with pytest.raises(ConfigError, match="weight"):
        padded_batches(tf.data.Dataset.from_tensor_slices(numbers(ROWS, 3)).batch(BATCH), model)


def test_batches_of_one_size_stay_as_they_are() -> None:
    model = plain()
    model.compile("sgd", "mse")
    fixed = tf.data.Dataset.from_tensor_slices(given(False)).batch(BATCH, drop_remainder=True)
    assert padded_batches(fixed, model) is fixed


def test_replicas_count_the_rows_of_all_of_them() -> None:
    command = [sys.executable, "-m", "tests.tensorflow.padded_runs"]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    found = json.loads(lines[-1][len("RESULT ") :])
    assert {"loss", "mae", "mse", "weights"} <= set(found) or not KERAS3
    assert max(found.values()) < 2e-5, found


@pytest.mark.parametrize("data", ["arrays", "dataset", "split"])
def test_under_a_plan_the_data_of_fit_are_filled_up(tmp_path: pathlib.Path, data: str) -> None:
    fit = {
        "arrays": "model.fit(*rows(40), batch_size=16, epochs=2, verbose=0, validation_data=rows(4))",
        "dataset": "model.fit(dataset(40, 16), epochs=2, verbose=0)",
        "split": "model.fit(*rows(50), batch_size=16, epochs=2, verbose=0, validation_split=0.2)",
    }[data]
    evidence, left = run_script(tmp_path, SMALL.format(fit=fit), xla={"jit": "model", "remainder": "pad"})
    assert left["steps"] == 6
    assert evidence.outcomes["pad_remainder"].status is Status.APPLIED
    assert "8 rows that is smaller than 16 rows is filled up" in evidence.outcomes["pad_remainder"].message or (
        data != "dataset"
    )
    assert [epoch["examples"] for epoch in evidence.measurements["throughput"]["epochs"]] == [40, 40]
    assert not [text for text in evidence.warnings if "remainder" in text]


def test_a_script_whose_model_cannot_be_filled_up_is_told(tmp_path: pathlib.Path) -> None:
    text = FIT.replace("plain()", "sequential(keras.layers.BatchNormalization(name='norm'))")
    with pytest.raises(NoEffectError, match=r"norm.*statistics over all rows"):
        run_script(tmp_path, text.format(fit="model.fit(dataset(40, 16), verbose=0)"), xla={"remainder": "pad"})


def test_the_older_key_means_the_same(tmp_path: pathlib.Path) -> None:
    fit = FIT.format(fit="model.fit(dataset(40, 16), epochs=2, verbose=0)")
    evidence, left = run_script(tmp_path, fit, xla={"remainder": "drop"})
    assert left["steps"] == 4 and evidence.outcomes["drop_remainder"].status is Status.APPLIED
