"""Intercepting construction, ``compile`` and ``fit`` of Keras 2."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from tests.stack import KERAS3, keras

if KERAS3:
    pytest.skip("for the two Keras 2 stacks", allow_module_level=True)

from tests.tensorflow import bridge_keras2_models as models
from tfvolta.bridge.base import Hooks
from tfvolta.errors import BridgeError

L = keras.layers
BRIDGE = models.bridge()


class Log:
    """Hooks that write down what they get."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.callbacks: list[Any] = []

    def hooks(self) -> Hooks:
        """The hooks."""
        return Hooks(
            before_layer=lambda: self.events.append("before_layer"),
            compile_arguments=self._compile,
            after_compile=lambda model: self.events.append(("after_compile", BRIDGE.is_compiled(model))),
            fit_callbacks=self._fit,
            after_fit=lambda model: self.events.append("after_fit"),
        )

    def _compile(self, model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        self.events.append(("compile", sorted(arguments)))
        return {**arguments, "steps_per_execution": 2}

    def _fit(self, model: Any, callbacks: Any, arguments: Any) -> Any:
        self.events.append(("fit", callbacks, sorted(arguments)))
        return self.callbacks


@pytest.fixture
def log() -> Iterator[Log]:
    """An interception that is undone after the test."""
    log = Log()
    undo = BRIDGE.intercept(log.hooks())
    try:
        yield log
    finally:
        undo()


def test_compile_and_fit_with_positional_arguments(log: Log) -> None:
    model = keras.Sequential([L.Flatten(input_shape=(8, 8, 3)), L.Dense(models.CLASSES, activation="softmax")])
    assert log.events == ["before_layer"]  # once
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=False)
    assert log.events[1:] == [("compile", ["loss", "optimizer", "run_eagerly"]), ("after_compile", True)]
    assert BRIDGE.steps_per_execution(model) == 2
    history = model.fit(models.IMAGES, models.LABELS, 8, 1, 0)
    assert log.events[3:] == [("fit", None, ["batch_size", "epochs", "verbose", "x", "y"]), "after_fit"]
    assert len(history.history["loss"]) == 1


def test_callbacks_are_the_hooks_answer_and_a_ready_list_works(log: Log) -> None:
    model = models.compiled(models.functional)
    ends: list[int] = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(epoch))
    log.callbacks = [watch]
    models.train(model, epochs=2)
    log.callbacks = BRIDGE.callback_list([watch], model, x=models.IMAGES, batch_size=16, verbose=0, epochs=2)
    models.train(model, epochs=2)
    assert ends == [0, 1, 0, 1]


def test_subclasses_that_override_are_reached_through_super(log: Log) -> None:
    class Own(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.head = L.Flatten(), L.Dense(models.CLASSES, activation="softmax")

        def call(self, inputs: Any) -> Any:
            return self.head(self.flat(inputs))

        def compile(self, rate: float, **arguments: Any) -> None:
            super().compile(keras.optimizers.SGD(rate), **arguments)

        def fit(self, *args: Any, **kwargs: Any) -> Any:
            return super().fit(*args, **kwargs)

    model = Own()
    model.compile(0.1, loss="sparse_categorical_crossentropy")
    model.fit(models.IMAGES, models.LABELS, batch_size=16, verbose=0)
    assert [event if isinstance(event, str) else event[0] for event in log.events] == [
        "before_layer",
        "compile",
        "after_compile",
        "fit",
        "after_fit",
    ]


def test_after_fit_also_follows_an_error(log: Log) -> None:
    model = models.compiled(models.functional)

    class Stop(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_begin(self, logs: Any = None) -> None:
            raise KeyboardInterrupt

    log.callbacks = [Stop()]
    with pytest.raises(KeyboardInterrupt):
        models.train(model)
    assert log.events[-1] == "after_fit"


def test_a_wrong_call_fails_in_keras_own_words(log: Log) -> None:
    model = models.compiled(models.functional)
    count = len(log.events)
    with pytest.raises(TypeError, match="nonsense"):
        model.fit(models.IMAGES, models.LABELS, nonsense=1)
    assert len(log.events) == count


@pytest.mark.parametrize("first", ["optimizer", "legacy", "layer", "input", "model"])
def test_whatever_is_constructed_first_is_noticed_before_its_policy_is_set(first: str) -> None:
    made = {
        "optimizer": keras.optimizers.SGD,
        "legacy": keras.optimizers.legacy.SGD,
        "layer": lambda: L.Dense(2),
        "input": lambda: keras.Input((2,)),
        "model": models.Subclassed,
    }[first]
    log = Log()
    hooks = log.hooks()
    object.__setattr__(
        hooks, "before_layer", lambda: (log.events.append("before"), BRIDGE.set_global_policy("mixed_float16"))
    )
    undo = BRIDGE.intercept(hooks)
    try:
        result = made()
        assert log.events == ["before"]
        if first in ("layer", "model"):
            assert result.dtype_policy.name == BRIDGE.global_policy() == "mixed_float16"
        L.Dense(2)
        assert log.events == ["before"]
    finally:
        undo()
        BRIDGE.set_global_policy("float32")


def test_a_second_interception_is_refused_and_undo_restores() -> None:
    classes = (BRIDGE.package.layer, BRIDGE.package.model, BRIDGE.package.optimizer, BRIDGE.package.legacy_optimizer)
    before = [dict(vars(cls)) for cls in classes]
    undo = BRIDGE.intercept(Log().hooks())
    with pytest.raises(BridgeError, match="already"):
        BRIDGE.intercept(Log().hooks())
    undo()
    undo()  # nothing left
    assert [{k: v for k, v in vars(cls).items() if k != "__abstractmethods__"} for cls in classes] == [
        {k: v for k, v in each.items() if k != "__abstractmethods__"} for each in before
    ]
    BRIDGE.intercept(Log().hooks())()
    assert [vars(cls)["__init__"] for cls in classes] == [each["__init__"] for each in before]


def test_automatic_configs_of_layers_survive_interception(log: Log) -> None:
    del log

    class Plain(L.Layer):  # type: ignore[misc,name-defined]
        """Inherits the constructor, whose arguments Keras reads for the config."""

    assert Plain(name="a", trainable=False).get_config()["trainable"] is False
