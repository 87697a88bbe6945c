"""The arguments by which every command takes a config."""

from __future__ import annotations

import argparse
from typing import Any


def add_config_arguments(parser: argparse.ArgumentParser, without: str = "the embedded default if left out") -> None:
    """Adds ``--config``, ``--set``, ``--directory`` and ``--no-strict``.

    Args:
        parser: Of the command.
        without: What happens where no config is given.
    """
    parser.add_argument("--config", metavar="FILE", help=f"YAML config, or tfvolta:NAME; {without}")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override, such as xla.jit=off; may be repeated"
    )
    parser.add_argument("--directory", metavar="DIR", help="run directory, instead of run.directory")
    parser.add_argument("--no-strict", action="store_true", help="late settings and those without effect only warn")


def load_from(arguments: argparse.Namespace) -> Any:
    """The config that a command line asks for.

    Raises:
        ConfigError: It cannot be used; all problems at once.
    """
    from tfvolta.config import load_config

    run: dict[str, Any] = {}
    if arguments.directory is not None:
        run["directory"] = arguments.directory
    if arguments.no_strict:
        run["strict"] = False
    return load_config(arguments.config or "tfvolta:default", overrides=arguments.set, **({"run": run} if run else {}))
