"""Keras 3: hooks around construction, ``compile`` and ``fit`` of every model class in a script left as it is."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import keras
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.trainers.trainer import Trainer

from tfvolta.bridge.base import Hooks
from tfvolta.errors import BridgeError, Problem

_MARK = "_tfvolta_intercepts"


def intercept(hooks: Hooks) -> Callable[[], None]:
    """See ``tfvolta.bridge.base.Bridge.intercept``.

    The patches sit on the base classes that hold the methods, so a user's subclass that overrides ``compile`` or
    ``fit`` is served when it calls ``super()``.
    """
    patched = (getattr(method, _MARK, None) for method in (Trainer.compile, TensorFlowTrainer.fit))
    if any(state is not None and state.active for state in patched):
        raise BridgeError(
            "compile and fit are intercepted already.",
            [
                Problem(
                    where="keras.Model",
                    expected="one interception a process",
                    received="a second one",
                    why="every hook would run twice",
                    fix="call the function that the first intercept returned, then intercept again",
                )
            ],
        )
    state = _State(hooks)
    undo = [
        _patch(keras.Layer, "__new__", staticmethod(state.constructing(keras.Layer.__new__))),
        _patch(TFOptimizer, "__init__", state.constructing(TFOptimizer.__init__)),
        _patch(keras.metrics.Metric, "__init__", state.constructing(keras.metrics.Metric.__init__)),
        _patch(Trainer, "compile", state.compile(Trainer.compile)),
        _patch(TensorFlowTrainer, "fit", state.fit(TensorFlowTrainer.fit)),
    ]

    def restore() -> None:
        state.active = False
        for step in reversed(undo):
            step()

    return restore


class _State:
    """What the patches share.

    Attributes:
        active: False once undone; a patch that another library wrapped meanwhile then passes everything through.
        constructed: Whether something was constructed already.
    """

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.active = True
        self.constructed = False

    def constructing(self, original: Any) -> Any:
        """A constructor that calls ``before_layer`` first, once for all of them."""

        @functools.wraps(original)
        def construct(*arguments: Any, **keywords: Any) -> Any:
            if self.active and not self.constructed:
                self.constructed = True
                self.hooks.before_layer()
            return original(*arguments, **keywords)

        return construct

    def compile(self, original: Any) -> Any:
        """``compile`` with its arguments named, changed by the hook, and reported afterwards."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def compile(model: Any, *arguments: Any, **keywords: Any) -> Any:
            if not self.active:
                return original(model, *arguments, **keywords)
            named = dict(signature.bind(model, *arguments, **keywords).arguments)
            named.pop(next(iter(signature.parameters)))
            result = original(model, **self.hooks.compile_arguments(model, named))
            self.hooks.after_compile(model)
            return result

        setattr(compile, _MARK, self)
        return compile

    def fit(self, original: Any) -> Any:
        """``fit`` with the callbacks that the hook makes, and ``after_fit`` whatever happens."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(model: Any, *arguments: Any, **keywords: Any) -> Any:
            if not self.active:
                return original(model, *arguments, **keywords)
            bound = signature.bind(model, *arguments, **keywords)
            bound.apply_defaults()
            named = dict(bound.arguments)
            named.pop(next(iter(signature.parameters)))
            given = named.pop("callbacks")
            try:
                if self.hooks.fit_arguments is not None:
                    named = self.hooks.fit_arguments(model, named)
                callbacks = self.hooks.fit_callbacks(model, given, named)
                return original(model, callbacks=callbacks, **named)
            finally:
                self.hooks.after_fit(model)

        setattr(fit, _MARK, self)
        return fit


def _patch(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Sets a class attribute; the result puts the former one back unless someone patched it again meanwhile."""
    former = owner.__dict__.get(name)
    setattr(owner, name, replacement)

    def restore() -> None:
        if owner.__dict__.get(name) is not replacement:
            return
        if former is None:
            delattr(owner, name)
        else:
            setattr(owner, name, former)

    return restore
