"""Keras 3: hooks around construction, compile and fit of scripts left as they are."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import Hooks
from tfvolta.errors import BridgeError

if not KERAS3:
    pytest.skip("the bridge to Keras 3", allow_module_level=True)

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
X = np.random.RandomState(0).randn(16, 6).astype("float32")
Y = X[:, :1]


class Seen:
    """What the hooks saw."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.compiled: list[dict[str, Any]] = []
        self.fitted: list[tuple[Any, dict[str, Any]]] = []
        self.hooks = Hooks(
            lambda: self.calls.append("before_layer"), self._compile, self._compiled, self._fit, self._fitted
        )

    def _compile(self, model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("compile")
        self.compiled.append(arguments)
        return {**arguments, "steps_per_execution": 2}

    def _compiled(self, model: Any) -> None:
        assert model.compiled
        self.calls.append("compiled")

    def _fit(self, model: Any, callbacks: Any, arguments: Any) -> Any:
        self.calls.append("fit")
        self.fitted.append((callbacks, dict(arguments)))
        notes = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: self.calls.append("ran"))
        return [*(callbacks or []), notes]

    def _fitted(self, model: Any) -> None:
        self.calls.append("fitted")


@pytest.fixture()
def seen() -> Iterator[Seen]:
    record = Seen()
    undo = BRIDGE.intercept(record.hooks)
    try:
        yield record
    finally:
        undo()


def mlp() -> Any:
    return keras.Sequential([keras.Input((6,)), layers.Dense(1)])


WHOLE = ["before_layer", "compile", "compiled", "fit", "ran", "fitted"]


def test_positional_arguments_are_named(seen: Seen) -> None:
    model = mlp()
    model.compile("sgd", "mse", None, ["mae"])
    model.fit(X, Y, 4, 2, 0)
    assert seen.calls == WHOLE
    assert seen.compiled[0] == {"optimizer": "sgd", "loss": "mse", "loss_weights": None, "metrics": ["mae"]}
    callbacks, arguments = seen.fitted[0]
    assert callbacks is None and "self" not in arguments and "callbacks" not in arguments
    assert (arguments["batch_size"], arguments["epochs"], arguments["verbose"]) == (4, 2, 0)
    assert model.steps_per_execution == 2 and int(model.optimizer.iterations) == 8


def functional() -> Any:
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Dense(1)(inputs))


class Overrides(keras.Model):
    """A script's own compile and fit, which call Keras's."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def compile(self, *arguments: Any, **keywords: Any) -> None:
        super().compile(*arguments, **keywords)
        self.extra = True

    def fit(self, *arguments: Any, **keywords: Any) -> Any:
        return super().fit(*arguments, **{**keywords, "epochs": 1})


@pytest.mark.parametrize("make", [mlp, functional, Overrides])
def test_every_kind_of_model(make: Any, seen: Seen) -> None:
    model = make()
    model.compile(optimizer="sgd", loss="mse")
    history = model.fit(X, Y, verbose=0, callbacks=[keras.callbacks.History()])
    assert seen.calls == WHOLE and len(history.history["loss"]) == 1
    assert isinstance(seen.fitted[0][0][0], keras.callbacks.History)


def test_the_first_construction_comes_before_its_variables_and_strategy(seen: Seen) -> None:
    keras.optimizers.SGD()
    layers.Dense(1)
    assert seen.calls == ["before_layer"]


def test_a_policy_set_by_the_hook_reaches_the_very_first_layer() -> None:
    hooks = Seen().hooks
    undo = BRIDGE.intercept(
        Hooks(
            lambda: BRIDGE.set_global_policy("mixed_float16"),
            hooks.compile_arguments,
            hooks.after_compile,
            hooks.fit_callbacks,
            hooks.after_fit,
        )
    )
    try:
        assert layers.Dense(1).compute_dtype == "float16" and BRIDGE.global_policy() == "mixed_float16"
    finally:
        undo()
        BRIDGE.set_global_policy("float32")


def test_after_fit_follows_an_exception_too(seen: Seen) -> None:
    model = mlp()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError):
        model.fit(X, np.zeros((3, 1), "float32"), verbose=0)
    assert seen.calls[-1] == "fitted"
    with pytest.raises(TypeError):
        model.fit(X, Y, no_such_argument=1)


def test_undo_restores_and_a_second_interception_is_refused() -> None:
    before = (keras.Model.compile, keras.Model.fit, keras.Layer.__new__, keras.optimizers.Optimizer.__init__)
    record = Seen()
    undo = BRIDGE.intercept(record.hooks)
    with pytest.raises(BridgeError, match="intercepted already"):
        BRIDGE.intercept(record.hooks)
    undo()
    after = (keras.Model.compile, keras.Model.fit, keras.Layer.__new__, keras.optimizers.Optimizer.__init__)
    assert after == before
    model = mlp()
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    assert record.calls == []
    BRIDGE.intercept(Seen().hooks)()


def test_a_patch_put_on_top_meanwhile_stays_and_passes_through() -> None:
    record = Seen()
    undo = BRIDGE.intercept(record.hooks)
    ours, owner = keras.Model.fit, next(cls for cls in keras.Model.__mro__ if "fit" in cls.__dict__)
    others: list[Any] = []

    def on_top(model: Any, *arguments: Any, **keywords: Any) -> Any:
        others.append(model)
        return ours(model, *arguments, **keywords)

    owner.fit = on_top
    try:
        undo()
        model = mlp()
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
        assert others == [model] and record.calls == []
        owner.fit = ours  # the other library takes its patch off: ours is there again, asleep
        BRIDGE.intercept(Seen().hooks)()
    finally:
        owner.fit = ours.__wrapped__


def test_loading_a_saved_model_passes_the_compile_hook(seen: Seen, tmp_path: Any) -> None:
    model = mlp()
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    seen.calls.clear()
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert seen.calls == ["compile", "compiled"] and isinstance(loaded.optimizer, keras.optimizers.SGD)
