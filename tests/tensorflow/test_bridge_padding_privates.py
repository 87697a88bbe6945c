"""Keras's insides that filled rows are left out through; a Keras that changes them must fail here."""

from __future__ import annotations

import inspect
from typing import Any

from tests.stack import KERAS3, keras, tf


def compiled() -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mse"])
    model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0)
    return model


def test_the_step_asks_the_model_for_loss_and_metrics() -> None:
    step = inspect.getsource(keras.Model.train_step)
    assert ("self._compute_loss(" if KERAS3 else "self.compute_loss(x, y, y_pred, sample_weight)") in step
    assert "self.compute_metrics(x, y, y_pred, sample_weight" in step
    if KERAS3:
        assert "self._loss_tracker.update_state(" in step
        assert "self.compute_loss(" in inspect.getsource(keras.Model._compute_loss)


def test_where_the_metrics_are() -> None:
    model = compiled()
    if KERAS3:
        assert model._compile_loss.built and model._compile_loss.metrics == []
        assert [metric.name for each in model._compile_metrics._flat_metrics for metric in each.metrics] == ["mae"]
        assert model._compile_metrics._user_metrics == ["mae"]
        assert model._loss_tracker.name == "loss"
        return
    assert model.compiled_loss._built and model.compiled_loss._total_loss_mean.name == "loss"
    assert model.compiled_loss._per_output_metrics == [None]
    assert [metric.name for metric in tf.nest.flatten(model.compiled_metrics._metrics)] == ["mae"]
    assert model.compiled_metrics._user_metrics == ["mae"]


def test_a_metric_calls_the_update_state_of_its_own() -> None:
    metric = keras.metrics.Mean()
    metric.__dict__["update_state"] = lambda values, sample_weight=None: sample_weight
    assert metric.update_state(1.0, sample_weight=2.0) == 2.0
