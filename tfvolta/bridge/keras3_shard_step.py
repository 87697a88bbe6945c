"""Keras 3: a train step whose sharded variables are trained shard by shard.

TensorFlow's tape gives no gradient of a sharded variable, and Keras's optimisers look for one slot for each variable.
While a step is traced, and only then, the shards stand in for the variable in the model's lists of weights, and the
shards of its slots for the slot in the optimiser's. Keras's own step, or a user's, then trains them like any others;
a gradient of rows stays one of rows, and goes to the server that has them. Layers read the variable itself, and it is
saved as one.

Not every optimiser can be split so: what looks at a variable as a whole gives another result for its shards.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Iterator

import keras

from tfvolta.bridge import keras3_replicas
from tfvolta.bridge.keras3_served import Served, Sharded
from tfvolta.errors import PlanError, Problem

# Optimisers whose update of an element depends on nothing but that element, so that shards change nothing.
ELEMENTWISE = frozenset(
    {"SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion", "ScheduleFreeAdamW"}
)
_WHOLE_CONSTRAINTS = ("NonNeg",)
_SUMMED_REGULARIZERS = ("L1", "L2", "L1L2")


def sharded(model: Any) -> list[Any]:
    """The trained variables of a model that are in shards."""
    return [variable for variable in model.trainable_variables if isinstance(variable, Sharded)]


def refuse(model: Any) -> None:
    """Refuses what would train otherwise in shards than it does in one piece.

    Raises:
        PlanError: With everything that would.
    """
    variables = sharded(model)
    problems = _optimizer_problems(model, variables) if variables else []
    for variable in variables:
        for kind, allowed in (("constraint", _WHOLE_CONSTRAINTS), ("regularizer", _SUMMED_REGULARIZERS)):
            item = getattr(variable, kind)
            if item is not None and type(item).__name__ not in allowed:
                problems.append(_looks_at_all(f"{variable.path}: {kind} {type(item).__name__}", ", ".join(allowed)))
    if problems:
        raise PlanError("A sharded variable cannot be trained like this.", problems)


def _optimizer_problems(model: Any, variables: list[Any]) -> list[Problem]:
    optimizer = keras3_replicas.innermost(model.optimizer)
    names = ", ".join(variable.path for variable in variables)
    found = []
    if type(optimizer).__name__ not in ELEMENTWISE or not type(optimizer).__module__.startswith("keras."):
        found.append(
            _looks_at_all(f"optimizer {type(optimizer).__name__} with {names}", ", ".join(sorted(ELEMENTWISE)))
        )
    if optimizer.use_ema:
        found.append(_looks_at_all(f"use_ema=True with {names}", "weights without an average"))
    if optimizer.clipnorm:
        found.append(_looks_at_all(f"clipnorm={optimizer.clipnorm} with {names}", "global_clipnorm or clipvalue"))
    return found


def _looks_at_all(received: str, instead: str) -> Problem:
    return Problem(
        where="strategy.shard_above_mb",
        expected=f"what treats each element by itself, such as {instead}",
        received=received,
        why="it looks at a variable as a whole, and each parameter server has a shard of it only",
        fix="use one of those, or raise strategy.shard_above_mb so that the variable stays in one piece",
    )


@contextlib.contextmanager
def shards_stand_in(model: Any) -> Iterator[None]:
    """Inside, a model's lists of weights and its optimiser's of slots hold shards in the place of sharded variables."""
    variables = sharded(model)
    if not variables:
        yield
        return
    with contextlib.ExitStack() as stack:
        taken = {id(variable) for variable in variables}
        for layer in _holders(model, taken):
            split = [
                part for item in layer._trainable_variables for part in (views(item) if id(item) in taken else [item])
            ]
            stack.enter_context(_replaced(layer, "_trainable_variables", split))
        for optimizer in _all_optimizers(model.optimizer):
            stack.enter_context(_split_optimizer(optimizer))
        yield


def views(variable: Any) -> list[Any]:
    """Keras variables of the shards of one; what else they are is what the variable is now."""
    made = []
    for number, shard in enumerate(variable.shards):
        view = copy.copy(variable)
        view.__class__ = Served
        view._value, view._shape = shard, tuple(shard.shape)
        view._name, view._path = f"{variable.name}_part_{number}", f"{variable.path}_part_{number}"
        made.append(view)
    return made


def _holders(model: Any, taken: set[int]) -> list[Any]:
    layers = [model, *model._flatten_layers(include_self=False, recursive=True)]
    return [layer for layer in layers if any(id(item) in taken for item in layer._trainable_variables)]


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value for an attribute, put past the checks of Keras's own ``__setattr__``."""
    former = owner.__dict__[name]
    owner.__dict__[name] = value
    try:
        yield
    finally:
        owner.__dict__[name] = former


@contextlib.contextmanager
def _split_optimizer(optimizer: Any) -> Iterator[None]:
    """An optimiser that was built for variables serves their shards."""
    whole = list(getattr(optimizer, "_trainable_variables", None) or ())
    if not whole:
        yield
        return
    with contextlib.ExitStack() as stack:
        for name, value in list(optimizer.__dict__.items()):
            if name != "_variables" and isinstance(value, (list, tuple)) and _are_slots(value, whole):
                stack.enter_context(_replaced(optimizer, name, _split(value, whole)))
        split = _split(whole, whole)
        indices = {optimizer._var_key(part): number for number, part in enumerate(split)}
        stack.enter_context(_replaced(optimizer, "_trainable_variables", split))
        stack.enter_context(_replaced(optimizer, "_trainable_variables_indices", indices))
        yield


def _are_slots(value: Any, whole: list[Any]) -> bool:
    """Whether a list holds one Keras variable, or None, for each trained variable."""
    return len(value) == len(whole) and all(item is None or isinstance(item, keras.Variable) for item in value)


def _split(value: Any, whole: list[Any]) -> list[Any]:
    """A list with one item for each variable, made into one with an item for each shard."""
    parts: list[Any] = []
    for item, variable in zip(value, whole):
        if isinstance(item, Sharded):
            parts += views(item)
        else:
            parts += [item] * (len(variable.shards) if isinstance(variable, Sharded) else 1)
    return parts


def _all_optimizers(optimizer: Any) -> list[Any]:
    """An optimiser and those inside it."""
    found = []
    while optimizer is not None:
        found.append(optimizer)
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return found
