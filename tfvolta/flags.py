"""tfvolta in an absl program: two flags that name a config and change it.

Example:
    ``tfvolta.flags.define_flags()`` at module level, then, first thing in ``main``,
    ``config = tfvolta.flags.config()``.
"""

from __future__ import annotations

import sys
from typing import Any

_CONFIG = "tfvolta_config"
_SET = "tfvolta_set"


def define_flags(flag_values: Any = None) -> None:
    """Defines ``--tfvolta_config`` and ``--tfvolta_set``; a second call changes nothing.

    Args:
        flag_values: The absl ``FlagValues`` to define them in; absl's global ones when None.
    """
    from absl import flags

    values = flags.FLAGS if flag_values is None else flag_values
    if _CONFIG in values:
        return
    flags.DEFINE_string(
        _CONFIG, None, "YAML config of tfvolta, or tfvolta:NAME of an embedded one.", flag_values=values
    )
    flags.DEFINE_multi_string(
        _SET, [], "Override of a config value, such as xla.jit=off; may be repeated.", flag_values=values
    )


def config(flag_values: Any = None) -> Any:
    """The config that the command line asks for.

    Args:
        flag_values: The absl ``FlagValues`` that ``define_flags`` was given.

    Returns:
        ``tfvolta.config.schema.Config``; the embedded default where no config was named.

    Raises:
        ConfigError: The flags were not defined or not parsed, or the config cannot be used.
        SystemExit: The config that absl's own command line names cannot be used; the problems are printed.
    """
    from absl import flags

    from tfvolta.config import load_config
    from tfvolta.errors import ConfigError, Problem

    values = flags.FLAGS if flag_values is None else flag_values
    if _CONFIG not in values or not values.is_parsed():
        raise ConfigError(
            "The config's flags cannot be read yet.",
            [
                Problem(
                    where="tfvolta.flags.config()",
                    expected="define_flags() at module level and a parsed command line",
                    received="flags not defined" if _CONFIG not in values else "flags not parsed",
                    why="absl parses the command line in app.run, before it calls main",
                    fix="call tfvolta.flags.define_flags() before app.run(main), and config() inside main",
                )
            ],
        )
    try:
        return load_config(values[_CONFIG].value, overrides=values[_SET].value)
    except ConfigError as error:
        if flag_values is not None:
            raise
        # The command line of a program: its user gets the message, and no traceback of the program's code.
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from error
