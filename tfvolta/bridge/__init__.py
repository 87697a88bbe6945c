"""The only place that knows Keras's insides: one module per Keras, behind ``tfvolta.bridge.base.Bridge``."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys
from typing import Any

from tfvolta.errors import BridgeError, Problem

STACKS = ("keras3", "tf_keras", "keras2")
_MODULES = {"keras3": "tfvolta.bridge.keras3", "tf_keras": "tfvolta.bridge.keras2", "keras2": "tfvolta.bridge.keras2"}


def stack_of(model: Any) -> str:
    """The stack that a model, layer or optimiser belongs to, from its classes and not from the environment.

    Raises:
        BridgeError: It is no Keras object.
    """
    for cls in type(model).__mro__:
        root = cls.__module__.split(".")[0]
        if root == "tf_keras":
            return "tf_keras"
        if root == "keras":
            version = getattr(sys.modules.get("keras"), "__version__", "3")
            return "keras2" if version.startswith("2.") else "keras3"
    raise BridgeError(
        "Not a Keras object.",
        [
            Problem(
                where="model",
                expected="a keras.Model or tf_keras.Model",
                received=f"{type(model).__module__}.{type(model).__qualname__}",
                fix="give tfvolta's callbacks to model.fit of a Keras model",
            )
        ],
    )


@functools.cache
def bridge_for_stack(stack: str) -> Any:
    """The bridge of a stack; imports its Keras."""
    return importlib.import_module(_MODULES[stack]).make_bridge(stack)


def bridge_for(model: Any) -> Any:
    """The bridge of the Keras that a model belongs to."""
    return bridge_for_stack(stack_of(model))


def default_stack(environ: Any = os.environ, keras_version: str | None = None) -> str:
    """The stack that ``tf.keras`` means in a process with this environment and installed Keras version."""
    if keras_version is not None and keras_version.startswith("2."):
        return "keras2"
    return "tf_keras" if environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") else "keras3"


def present_stack() -> str:
    """The stack that ``tf.keras`` means in this process, from the Keras that is imported or else installed."""
    keras = sys.modules.get("keras")
    try:
        version = getattr(keras, "__version__", None) or importlib.metadata.version("keras")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return default_stack(keras_version=version)
