"""The sessions that are open in this process."""

from __future__ import annotations

import os
from typing import Optional

from absl import logging

from tfvolta.config.schema import Config
from tfvolta.errors import ConfigError, Problem
from tfvolta.session.ending import Origin
from tfvolta.session.session import Session

_open: list[Session] = []


def session_for(config: Config, origin: Optional[Origin] = None) -> Session:
    """The open session of a config in this process, or a new one.

    ``build_strategy`` and ``build_callbacks`` of one config share one session, so that settings are applied once
    and land in one piece of evidence.
    """
    _check(config)
    _open[:] = [session for session in _open if session.is_open]
    for session in _open:
        if session.config is config or session.config == config:
            return session
    session = Session(config, origin=origin)
    _open.append(session)
    _close_at_exit(session)
    return session


def _check(config: Config) -> None:
    if not isinstance(config, Config):
        raise ConfigError(
            "This is not a config.",
            [
                Problem(
                    where="config",
                    expected="what tfvolta.load_config returns",
                    received=f"{type(config).__name__} {str(config)[:80]!r}",
                    fix="call tfvolta.load_config(path) and give its result",
                )
            ],
        )


def _tell_what_never_bound(session: Session) -> None:
    """A policy set after the model was made changes nothing by itself, and nothing else would say so."""
    pending = session.ledger.pending()
    if session.is_open and pending:
        logging.warning(
            "tfvolta: no model was given to fit with tfvolta's callbacks, so these settings did not bind: %s. "
            "Write model.fit(..., callbacks=tfvolta.build_callbacks(config, model)).",
            ", ".join(pending),
        )


def _close_at_exit(session: Session) -> None:
    import atexit
    import sys

    pid = os.getpid()

    def close() -> None:
        if os.getpid() != pid:
            return  # a forked child ends; the session is its parent's
        error = getattr(sys, "last_value", None)
        if error is None:
            _tell_what_never_bound(session)
            session.close("completed")
        else:
            session.close("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", error)

    atexit.register(close)
