"""Wrapping construction, ``compile`` and ``fit`` of Keras 2, so that an unmodified script can be configured."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from tfvolta.bridge.base import Hooks
from tfvolta.bridge.keras2_package import Package
from tfvolta.errors import BridgeError, Problem

_MARK = "_tfvolta_intercepted"


class InterceptionPart:
    """The part of the bridge that concerns unmodified scripts.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def intercept(self, hooks: Hooks) -> Callable[[], None]:
        """Wraps construction, ``compile`` and ``fit`` of every model class; the result undoes it.

        A subclass's own ``compile`` or ``fit`` is reached where it calls the inherited one.

        Raises:
            BridgeError: This Keras is intercepted already.
        """
        model = self.package.model
        if getattr(model, _MARK, False):
            raise BridgeError("Keras is intercepted already.", [_twice(self.package)])
        undo: list[Callable[[], None]] = []
        setattr(model, _MARK, True)
        undo.append(lambda: delattr(model, _MARK))
        _replace(model, "compile", functools.partial(_compile, hooks), undo)
        _replace(model, "fit", functools.partial(_fit, hooks), undo)
        _watch_construction(self.package, hooks, undo)

        def restore() -> None:
            while undo:
                undo.pop()()

        return restore


def _replace(cls: Any, name: str, make: Callable[[Any], Any], undo: list[Callable[[], None]]) -> None:
    """Replaces a method of a class by what ``make`` builds around it."""
    original = cls.__dict__[name]
    setattr(cls, name, make(original))
    undo.append(lambda: setattr(cls, name, original))


def _compile(hooks: Hooks, original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = _named(signature, self, args, kwargs)
        if named is None:
            return original(self, *args, **kwargs)
        result = original(self, **hooks.compile_arguments(self, named))
        hooks.after_compile(self)
        return result

    return wrapper


def _fit(hooks: Hooks, original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = _named(signature, self, args, kwargs)
        if named is None:
            return original(self, *args, **kwargs)
        try:
            if hooks.fit_arguments is not None:
                given = {name: value for name, value in named.items() if name != "callbacks"}
                named = {**named, **hooks.fit_arguments(self, given)}
            named["callbacks"] = hooks.fit_callbacks(self, named.get("callbacks"), dict(named))
            return original(self, **named)
        finally:
            hooks.after_fit(self)

    return wrapper


def _named(signature: inspect.Signature, model: Any, args: Any, kwargs: Any) -> Any:
    """The arguments by name; None where the call is wrong, which Keras then says in its own words."""
    try:
        bound = signature.bind(model, *args, **kwargs)
    except TypeError:
        return None
    named = dict(bound.arguments)
    named.pop(next(iter(signature.parameters)))
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(named.pop(parameter.name, {}))
    return named


def _watch_construction(package: Package, hooks: Hooks, undo: list[Callable[[], None]]) -> None:
    """Calls ``before_layer`` ahead of the first layer, model or optimiser, and then gets out of the way."""
    watched: list[tuple[Any, Any]] = []

    def stop() -> None:
        while watched:
            cls, original = watched.pop()
            cls.__init__ = original

    def watch(cls: Any) -> None:
        original = cls.__init__

        @functools.wraps(original)
        def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
            if watched:
                stop()
                hooks.before_layer()
            original(self, *args, **kwargs)

        watched.append((cls, original))
        cls.__init__ = initialize

    for cls in (package.layer, package.model, package.optimizer, package.legacy_optimizer):
        watch(cls)
    undo.append(stop)


def _twice(package: Package) -> Problem:
    return Problem(
        where=f"intercept({package.root})",
        expected="one interception at a time",
        received="a second one",
        why="each would wrap the other, and every callback would be given twice",
        fix="call the function that the first intercept returned",
    )
