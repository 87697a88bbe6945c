"""From the arguments of one callback to a config and its session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfvolta.session import Session


def session_of(strict: bool, **sections: Any) -> Session:
    """A session for a config that holds only one callback's settings; it leaves no files behind.

    Args:
        strict: Whether LATE and NO_EFFECT are errors instead of warnings.
        sections: Sections of the config as mappings, such as ``xla={"jit": "model"}``.

    Raises:
        ConfigError: An argument is not accepted; all problems are reported at once.
        PlanError: The setting cannot work on this machine or stack.
    """
    from tfvolta.config import load_config
    from tfvolta.session import Origin, Session

    return Session(load_config(run={"strict": strict}, **sections), origin=Origin(record=False))
