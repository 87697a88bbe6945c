"""Config files: schema, loading, provenance. Names are resolved on first use: importing the package is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfvolta.config.dumping import config_to_dict, dump_config
    from tfvolta.config.loading import load_config
    from tfvolta.config.provenance import Origin, origin_of
    from tfvolta.config.schema import Config

_HOMES = {
    "Config": "schema",
    "Origin": "provenance",
    "config_to_dict": "dumping",
    "dump_config": "dumping",
    "load_config": "loading",
    "origin_of": "provenance",
}

__all__ = ["Config", "Origin", "config_to_dict", "dump_config", "load_config", "origin_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
