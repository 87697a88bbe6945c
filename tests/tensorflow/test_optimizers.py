"""Optimisers and learning rates from a config: what trains, with what state, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras
from tfvolta.config.schema import Config
from tfvolta.errors import BridgeError, NoEffectError, PlanError
from tfvolta.knobs.optimizer import CLASSES
from tfvolta.outcome import Status
from tfvolta.session import session_for

RNG = np.random.default_rng(5)
X = RNG.normal(size=(32, 6)).astype("float32")
Y = (X @ RNG.normal(size=(6, 1))).astype("float32")
MIXED = {"policy": "mixed_float16"}


def make_model(optimizer: Any = "sgd") -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def config(tmp_path: Path, **sections: Any) -> Config:
    return Config.model_validate({"run": {"directory": str(tmp_path / "runs")}, **sections})


def train(asked: Config, model: Any, epochs: int = 2, callbacks: Any = (), initial_epoch: int = 0) -> Any:
    model.fit(
        X,
        Y,
        batch_size=8,
        epochs=epochs,
        initial_epoch=initial_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[*tfvolta.build_callbacks(asked), *callbacks],
    )
    return session_for(asked).endings


def inner(model: Any) -> Any:
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


@pytest.mark.parametrize("mixed", (False, True))
@pytest.mark.parametrize("name", sorted(CLASSES[STACK]))
def test_every_optimizer_of_the_stack_trains(tmp_path: Path, name: str, mixed: bool) -> None:
    asked = config(
        tmp_path,
        optimizer={"name": name, "learning_rate": 0.02},
        **({"mixed_precision": MIXED} if mixed else {}),
    )
    model = make_model()
    before = [np.array(weight) for weight in model.get_weights()]
    outcome = train(asked, model, epochs=3)["optimizer"].outcome
    assert outcome.status is Status.APPLIED, outcome
    cls, package = CLASSES[STACK][name]
    assert (type(inner(model)).__name__, type(inner(model)).__module__.split(".")[0]) == (cls, package)
    assert hasattr(model.optimizer, "inner_optimizer") is mixed
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(before, model.get_weights()))
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_the_same_weights_as_written_by_hand(tmp_path: Path) -> None:
    by_hand = make_model(keras.optimizers.AdamW(learning_rate=0.01, weight_decay=0.1, clipnorm=0.5))
    by_hand.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    asked = config(tmp_path, optimizer={"name": "adamw", "weight_decay": 0.1})
    model = make_model(keras.optimizers.SGD(0.01, clipnorm=0.5))  # rate and clipping are the script's
    train(asked, model)
    for ours, theirs in zip(model.get_weights(), by_hand.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_a_schedule_of_the_script_is_kept(tmp_path: Path) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    model = make_model(keras.optimizers.SGD(schedule))
    train(config(tmp_path, optimizer={"name": "adamw"}), model, epochs=1)
    rate = float(model.optimizer.learning_rate)
    assert rate == pytest.approx(0.1 * 0.5 ** (4 if KERAS3 else 3))  # Keras 2 shows the one that was used last


def test_an_optimizer_that_has_trained_is_left_alone(tmp_path: Path) -> None:
    model = make_model()
    model.fit(X, Y, batch_size=8, verbose=0)
    with pytest.raises(NoEffectError, match="had taken 4 steps, so it was not replaced"):
        train(config(tmp_path, optimizer={"name": "adamw"}), model)
    assert type(model.optimizer).__name__ == "SGD"


def test_a_second_fit_goes_on_with_the_same_optimizer(tmp_path: Path) -> None:
    asked, model = config(tmp_path, optimizer={"name": "adamw"}), make_model()
    train(asked, model)
    first = model.optimizer
    outcome = train(asked, model)["optimizer"].outcome
    assert model.optimizer is first
    assert outcome.status is Status.APPLIED and outcome.observed["iterations"] > 8


@pytest.mark.parametrize("name", ("novograd", "lazy_adam", "rectified_adam", "lamb"))
def test_what_a_stack_lacks_is_refused_before_training(tmp_path: Path, name: str) -> None:
    if name in CLASSES[STACK]:
        pytest.skip("this stack has it")
    with pytest.raises(PlanError, match=f"received: {name}"):
        tfvolta.build_callbacks(config(tmp_path, optimizer={"name": name}))


class Weights:
    """Notes the first kernel after each batch; duck-typed like any callback of the package."""

    def __init__(self, base: Any):
        outer = self
        self.seen: list[Any] = []

        class Note(base):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                outer.seen.append(np.array(self.model.get_weights()[0]))

        self.callback = Note()


@pytest.mark.parametrize("mixed", (False, True))
def test_a_moving_average_replaces_the_weights_at_the_end(tmp_path: Path, mixed: bool) -> None:
    sections: dict[str, Any] = {"mixed_precision": {"policy": "mixed_float16", "loss_scale": {"fixed": 8.0}}}
    asked = config(
        tmp_path,
        optimizer={"average_weights": "exponential", "average_decay": 0.5},
        **(sections if mixed else {}),
    )
    model, weights = make_model(), Weights(keras.callbacks.Callback)
    start = np.array(model.get_weights()[0])
    outcome = train(asked, model, callbacks=[weights.callback])["optimizer"].outcome
    assert outcome.status is Status.APPLIED and outcome.observed["average"] == "exponential"
    candidates = []
    for first in (start, np.zeros_like(start), weights.seen[0]):  # Keras 2 starts from zero, Keras 3 from the weights
        average = first
        for seen in weights.seen[1 if first is weights.seen[0] else 0 :]:
            average = 0.5 * average + 0.5 * seen
        candidates.append(np.abs(average - model.get_weights()[0]).max())
    assert min(candidates) < 1e-5
    assert np.abs(weights.seen[-1] - model.get_weights()[0]).max() > 1e-5


@pytest.mark.skipif(STACK != "keras2", reason="TensorFlow Addons works on the keras2 stack only")
def test_the_mean_of_weights_of_tensorflow_addons(tmp_path: Path) -> None:
    asked = config(tmp_path, optimizer={"name": "sgdw", "average_weights": "stochastic", "average_every_steps": 1})
    model, weights = make_model(keras.optimizers.SGD(0.05)), Weights(keras.callbacks.Callback)
    outcome = train(asked, model, callbacks=[weights.callback])["optimizer"].outcome
    assert outcome.status is Status.APPLIED and outcome.observed["average"] == "stochastic"
    np.testing.assert_allclose(model.get_weights()[0], np.mean(weights.seen, axis=0), atol=1e-5)


@pytest.mark.skipif(STACK != "keras2", reason="TensorFlow Addons works on the keras2 stack only")
def test_the_two_families_are_kept_apart(tmp_path: Path) -> None:
    with pytest.raises(BridgeError, match="received: SGD, of the new family"):
        train(config(tmp_path, optimizer={"average_weights": "stochastic"}), make_model())
    legacy = make_model(keras.optimizers.legacy.SGD(0.05))
    outcome = train(config(tmp_path / "legacy", optimizer={"average_weights": "stochastic"}), legacy)["optimizer"]
    assert outcome.outcome.status is Status.APPLIED and outcome.outcome.observed["family"] == "legacy"


def test_callbacks_of_tensorflow_addons(tmp_path: Path) -> None:
    asked = config(
        tmp_path,
        optimizer={"name": "adamw" if STACK != "keras2" else "lamb", "average_weights": "exponential"},
        addons={"time_limit_seconds": 3600, "average_checkpoint": str(tmp_path / "average.h5")},
    )
    if STACK != "keras2":
        with pytest.raises(PlanError, match="expected: the keras2 stack"):
            tfvolta.build_callbacks(asked)
        return
    outcome = train(asked, make_model())["addons"].outcome
    assert outcome.status is Status.APPLIED
    assert outcome.observed["callbacks"] == ["AverageModelCheckpoint", "TimeStopping"]
    assert (tmp_path / "average.h5").is_file()


# -- learning rate


class Rates:
    """Notes the learning rate that each batch has."""

    def __init__(self) -> None:
        outer = self
        self.seen: list[float] = []

        class Note(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                outer.seen.append(float(inner(self.model).learning_rate))

        self.callback = Note()


def rates(asked: Config, model: Any, epochs: int = 3, initial_epoch: int = 0) -> list[float]:
    noted = Rates()
    outcome = train(asked, model, epochs, [noted.callback], initial_epoch)["learning_rate"].outcome
    assert outcome.status is Status.APPLIED, outcome
    return noted.seen


def test_it_rises_batch_by_batch_to_the_target(tmp_path: Path) -> None:
    asked = config(tmp_path, learning_rate={"target": 0.4, "warmup_epochs": 2.0})
    seen = rates(asked, make_model(keras.optimizers.SGD(0.2)))
    expected = [0.2 + 0.2 * min(1.0, step / 8) for step in range(12)]  # 4 batches an epoch
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_a_fit_that_goes_on_starts_at_its_place_on_the_ramp(tmp_path: Path) -> None:
    asked = config(tmp_path, learning_rate={"target": 0.4, "warmup_epochs": 2.0})
    seen = rates(asked, make_model(keras.optimizers.SGD(0.2)), epochs=3, initial_epoch=1)
    np.testing.assert_allclose(seen, [0.3, 0.325, 0.35, 0.375, 0.4, 0.4, 0.4, 0.4], rtol=1e-6)


def test_an_optimizer_with_steps_holds_the_target_already(tmp_path: Path) -> None:
    model = make_model(keras.optimizers.SGD(0.2))
    model.fit(X, Y, batch_size=8, verbose=0)
    asked = config(tmp_path, learning_rate={"scaling": "linear"})
    train(asked, model)
    outcome = session_for(asked).endings["learning_rate"].outcome
    assert "taken for the target" in outcome.message
    assert float(model.optimizer.learning_rate) == pytest.approx(0.2)


@pytest.mark.parametrize("scaling", ("linear", "square_root"))
def test_the_factor_is_the_number_of_replicas(tmp_path: Path, scaling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfvolta.knobs.learning_rate.replicas_of", lambda context: 4)
    asked = config(tmp_path, learning_rate={"scaling": scaling})
    seen = rates(asked, make_model(keras.optimizers.SGD(0.05)), epochs=1)
    factor = 4 if scaling == "linear" else math.sqrt(4)
    np.testing.assert_allclose(seen, [0.05 * factor] * 4, rtol=1e-6)


def test_a_second_fit_does_not_scale_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfvolta.knobs.learning_rate.replicas_of", lambda context: 4)
    asked, model = config(tmp_path, learning_rate={"scaling": "linear"}), make_model(keras.optimizers.SGD(0.05))
    assert rates(asked, model, 1) + rates(asked, model, 1) == pytest.approx([0.2] * 8)


@pytest.mark.parametrize("warmup", (0.0, 1.0))
def test_schedules(tmp_path: Path, warmup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfvolta.knobs.learning_rate.replicas_of", lambda context: 4)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.1, 0.01])
    model = make_model(keras.optimizers.SGD(schedule))
    asked = config(tmp_path, learning_rate={"scaling": "linear", "warmup_epochs": warmup})
    if warmup:
        with pytest.raises(NoEffectError, match="no value to raise"):
            train(asked, model)
        return
    outcome = train(asked, model)["learning_rate"].outcome
    assert outcome.status is Status.APPLIED, outcome
    made = inner(model)._learning_rate
    assert type(made) is type(schedule)
    np.testing.assert_allclose(made.get_config()["values"], [0.4, 0.04])


def test_a_schedule_of_the_scripts_own_cannot_be_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfvolta.knobs.learning_rate.replicas_of", lambda context: 4)

    class Own(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> Any:
            return 0.1

        def get_config(self) -> Optional[dict[str, Any]]:
            return {}

    with pytest.raises(NoEffectError, match="multiply them by 4 in the script"):
        train(config(tmp_path, learning_rate={"scaling": "linear"}), make_model(keras.optimizers.SGD(Own())))
