"""What is measured from here trains in one process: strategies of several are refused."""

from __future__ import annotations

from typing import Any

from tfvolta.errors import ConfigError, Problem

_MULTI_PROCESS = ("multi_worker_mirrored", "horovod", "parameter_server")


def refuse_several(config: Any, summary: str, why: str, fix: str) -> None:
    """Refuses a strategy of several processes.

    Args:
        config: What is to be measured.
        summary: What cannot be done, in a sentence.
        why: Why one process has to do.
        fix: The command to write instead.

    Raises:
        ConfigError: The config's strategy has several processes.
    """
    kind = config.get("strategy.kind")
    if kind in _MULTI_PROCESS:
        expected = "default, one_device or mirrored, which train in one process"
        raise ConfigError(summary, [Problem("strategy.kind", expected, kind, why, fix)])
