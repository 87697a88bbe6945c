"""What a model's own train step says in its code about loss scaling.

Keras scales the loss inside its own ``train_step``. A model that overrides it takes its gradients itself, and has to
scale the loss as well; where it does not, a loss-scale optimiser divides gradients that nobody multiplied.
"""

from __future__ import annotations

import types
from typing import Any, Iterator

# Calls that scale the loss, or hand the step back to Keras, which does.
_SCALING = frozenset({"scale_loss", "get_scaled_loss", "minimize", "train_step"})
_GRADIENTS = frozenset({"gradient", "gradients"})
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "builtins", "tfvolta")


def leaves_loss_unscaled(model: Any) -> bool:
    """Whether the model has a ``train_step`` of its own that takes gradients and never scales the loss.

    Args:
        model: A Keras model; the code of its own classes, of a ``train_step`` put on the instance, and of the functions
            of their modules that they call, is looked at.
    """
    functions = _own_functions(model)
    if "train_step" not in functions:
        return False
    names: set[str] = set()
    for function in functions.values():
        for code in _nested(function.__code__):
            names.update(code.co_names)
            names.update(constant for constant in code.co_consts if isinstance(constant, str))  # getattr's
    return bool(names & _GRADIENTS) and not names & _SCALING


def has_own_step(model: Any) -> bool:
    """Whether the model's ``train_step`` is not Keras's."""
    return "train_step" in _own_functions(model)


def _own_functions(model: Any) -> dict[str, types.FunctionType]:
    """The model's functions that are not Keras's, by name."""
    found: dict[str, types.FunctionType] = {}
    attributes = [cls for cls in reversed(type(model).__mro__) if cls.__module__.split(".")[0] not in _FRAMEWORKS]
    for name, item in [pair for cls in attributes for pair in vars(cls).items()] + list(vars(model).items()):
        function = getattr(getattr(item, "python_function", item), "__func__", getattr(item, "python_function", item))
        # What tfvolta puts on the instance around Keras's own step is Keras's.
        if isinstance(function, types.FunctionType) and function.__module__.split(".")[0] not in _FRAMEWORKS:
            found[name] = function
    for function in list(found.values()):
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, types.FunctionType) and called.__module__ == function.__module__:
                found.setdefault(f"{called.__module__}.{name}", called)
    return found


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
