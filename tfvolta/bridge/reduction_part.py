"""The part of every bridge that changes how gradients reach the optimiser; what differs by Keras is an adapter."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, Callable, ContextManager, Iterable, Mapping, Optional, Protocol

from tfvolta.bridge.gradient_path import ACCUMULATE, UPDATE, WATCH, GradientPath
from tfvolta.bridge.reduction import ReductionGraph, ReductionSettings, ReductionState
from tfvolta.bridge.reduction_graphs import reduction_graph
from tfvolta.bridge.watched_function import WatchedFunction, WatchingFunction
from tfvolta.bridge.window_function import BoundModel, StepFunction, WindowFunction
from tfvolta.errors import BridgeError, Problem

_PATH = "_tfvolta_gradient_path"
_MAKE = "make_train_function"


class Adapter(Protocol):
    """What one Keras has of its own."""

    def optimizers(self, model: Any) -> Iterable[Any]:
        """The outermost optimisers that a model's train step may use."""

    def attach(self, optimizer: Any, path: GradientPath) -> None:
        """Puts a path in front of an optimiser; one that has it stays as it is."""

    def detach(self, optimizer: Any) -> None:
        """Takes a path away; nothing where there is none."""

    def prepare(self, model: Any) -> None:
        """Makes an optimiser's variables where that can be done before the train step is traced."""

    def one_step(self, model: Any) -> ContextManager[None]:
        """A context in which a model trains one batch a call; an object of a class, which autograph leaves alone."""

    def steps(self, model: Any) -> int:
        """Batches in the next call of the train function."""

    def remake(self, model: Any) -> None:
        """Forgets the traced functions."""


class ReductionPart:
    """The same for Keras 2 and Keras 3; see ``tfvolta.bridge.base.Bridge``.

    Attributes:
        reduction_adapter: What is this Keras's own.
    """

    reduction_adapter: Adapter

    def set_reduction(self, model: Any, **settings: Any) -> bool:
        """Changes how a compiled model's gradients are reduced; from any hook before the first step of a fit.

        Args:
            settings: Fields of ``tfvolta.bridge.reduction.ReductionSettings`` that change; the others stay.

        Returns:
            False where it was so; gradients that wait for an update are forgotten all the same.
        """
        former = path_of(model)
        wanted = dataclasses.replace(ReductionSettings() if former is None else former.settings, **settings)
        return install(self.reduction_adapter, model, wanted)

    def reduction(self, model: Any) -> Optional[ReductionState]:
        """How a model's gradients are reduced, and what was done in the present or last fit; None as in plain Keras."""
        path = path_of(model)
        return None if path is None or not path.settings.changes else path.state

    def reduction_graphs(self, model: Any) -> Mapping[str, ReductionGraph]:
        """What is reduced in each traced train function, by ``accumulate`` and ``update``; empty before a trace."""
        path = path_of(model)
        functions = {UPDATE: getattr(model, "train_function", None)}
        if path is not None and path.functions:
            functions = dict(path.functions)
        strategy = model.distribute_strategy
        replicas = len(strategy.extended.worker_devices) if strategy.num_replicas_in_sync > 1 else 1
        found = {mode: reduction_graph(function, replicas) for mode, function in functions.items()}
        return {mode: graph for mode, graph in found.items() if graph is not None}


def path_of(model: Any) -> Optional[GradientPath]:
    """The path of a model's gradients; None where they go as in plain Keras."""
    path = getattr(model, "__dict__", {}).get(_PATH)
    return path if isinstance(path, GradientPath) else None


def install(adapter: Adapter, model: Any, settings: ReductionSettings, taken_over: bool = False) -> bool:
    """Gives a model's gradients a path, or plain Keras's way where nothing is asked for.

    Raises:
        BridgeError: The model was not compiled, or reduces in a way that has no place for it.
    """
    former = path_of(model)
    if not settings.changes and not is_observed(former):
        return _remove(adapter, model, former)
    _check(model, settings)
    if former is not None and (former.settings, former.taken_over) == (settings, taken_over):
        former.restart(model.distribute_strategy)
        _attach(adapter, model, former)
        return False
    path = GradientPath(settings, taken_over)
    if former is not None:
        path.watch, path.keeper = former.watch, former.keeper
    put(adapter, model, path)
    return True


def is_observed(path: Optional[GradientPath]) -> bool:
    """Whether somebody looks at gradients or keeps batches."""
    return path is not None and (path.watch is not None or path.keeper is not None)


def observe(adapter: Adapter, model: Any, **observers: Any) -> None:
    """Lets somebody, or nobody any more, look at a model's gradients or keep its batches from its next trace on.

    Args:
        observers: ``watch`` or ``keeper`` of ``GradientPath``; what is not named stays.

    Raises:
        BridgeError: The model was not compiled.
    """
    former = path_of(model)
    path = GradientPath(*((ReductionSettings(),) if former is None else (former.settings, former.taken_over)))
    if former is not None:
        path.watch, path.keeper = former.watch, former.keeper
    for name, observer in observers.items():
        setattr(path, name, observer)
    if path.settings.changes or is_observed(path):
        _check(model, path.settings)
        put(adapter, model, path)
    else:
        _remove(adapter, model, former)


def put(adapter: Adapter, model: Any, path: GradientPath) -> None:
    """Lets a model's gradients go a path from its next trace on."""
    model.__dict__[_PATH] = path
    model.__dict__[_MAKE] = types.MethodType(_maker(adapter), model)
    _attach(adapter, model, path)
    adapter.remake(model)


def _remove(adapter: Adapter, model: Any, path: Optional[GradientPath]) -> bool:
    if path is None:
        return False
    for optimizer in adapter.optimizers(model):
        adapter.detach(optimizer)
    for name in (_PATH, _MAKE):
        model.__dict__.pop(name, None)
    adapter.remake(model)
    return True


def _attach(adapter: Adapter, model: Any, path: GradientPath) -> None:
    adapter.prepare(model)
    for optimizer in adapter.optimizers(model):
        adapter.attach(optimizer, path)


def _maker(adapter: Adapter) -> Callable[..., Any]:
    """``make_train_function`` of a model with a path; it looks for the outermost optimiser each time."""

    def make_train_function(self: Any, force: bool = False) -> Any:
        path = path_of(self)
        if path is None or (self.train_function is not None and not force):
            return type(self).make_train_function(self, force=force)
        _attach(adapter, self, path)
        batches = functools.partial(adapter.steps, self)
        watched = None if path.watch is None else _function(adapter, self, path, WATCH)
        plain = _function(adapter, self, path)
        if watched is None or path.watch is None:
            self.train_function = plain
        else:
            self.train_function = WatchedFunction(path, path.watch, (plain, watched), batches)
        return self.train_function

    return make_train_function


def _function(adapter: Adapter, model: Any, path: GradientPath, *modes: str) -> Callable[[Any], Any]:
    """A train function in which gradients take the path, traced in further modes where they are given."""
    bound = BoundModel(model, functools.partial(adapter.steps, model), functools.partial(adapter.one_step, model))
    if path.settings.every == 1:
        made = _made(model)
        if path.keeper is not None and bound.steps() == 1:
            made = StepFunction(made, path, modes, bound)
        elif modes:
            return WatchingFunction(made, path)
        if not modes:
            path.functions = {UPDATE: made}
        return made
    functions = {}
    for mode in (UPDATE, ACCUMULATE):
        with adapter.one_step(model):
            functions[mode] = StepFunction(_made(model), path, (mode, *modes), bound)
    if not modes:
        path.functions = functions
    return WindowFunction(path, bound, functions)


def _made(model: Any) -> Callable[[Any], Any]:
    """A train function of Keras's that nothing was traced of."""
    model.train_function = None
    made = type(model).make_train_function(model, force=True)
    return model.train_function or made  # type: ignore[no-any-return]


def _check(model: Any, settings: ReductionSettings) -> None:
    if getattr(model, "optimizer", None) is None:
        raise BridgeError(
            "The model has no optimiser.",
            [
                Problem(
                    where=f"model {getattr(model, 'name', model)}",
                    expected="a compiled model with an optimiser",
                    received="optimizer=None",
                    why="gradients are reduced on their way to the optimiser",
                    fix="call model.compile(optimizer=...) before",
                )
            ],
        )
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if settings.all_reduce is not None and replicas > 1:
        raise BridgeError(
            "Gradients cannot be reduced twice.",
            [
                Problem(
                    where=settings.all_reduce.name,
                    expected="one replica in each rank",
                    received=f"{type(model.distribute_strategy).__name__} with {replicas} replicas",
                    why="the strategy sums over its replicas, and ranks divide the loss by their own number",
                    fix="make the model outside of strategy.scope()",
                )
            ],
        )
