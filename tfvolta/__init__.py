"""Verified performance settings for Keras training: from a config file to settings that took effect.

Importing this package imports neither TensorFlow nor Keras nor pydantic; what needs them is loaded when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


# Public name to the module that holds it; a module itself where both are the same.
_EXPORTS = {
    "load_config": "tfvolta.config",
    "build_strategy": "tfvolta.entry",
    "build_callbacks": "tfvolta.entry",
    "make_plan": "tfvolta.plan",
    "callbacks": "tfvolta.callbacks",
    "flags": "tfvolta.flags",
    "errors": "tfvolta.errors",
    "precision": "tfvolta.precision",
    "audit": "tfvolta.audit",
    "data": "tfvolta.data",
    "distributed_loop": "tfvolta.distributed_loop",
}

__all__ = [
    "__version__",
    "audit",
    "build_callbacks",
    "build_strategy",
    "callbacks",
    "data",
    "distributed_loop",
    "errors",
    "flags",
    "load_config",
    "make_plan",
    "precision",
]

if TYPE_CHECKING:
    from tfvolta import audit, callbacks, data, distributed_loop, errors, flags, precision
    from tfvolta.config import load_config
    from tfvolta.entry import build_callbacks, build_strategy
    from tfvolta.plan import make_plan


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tfvolta' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(_EXPORTS[name])
    value = module if module.__name__ == f"tfvolta.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
