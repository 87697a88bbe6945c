"""The sessions that are open in this process."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Optional

from absl import logging

from tfvolta.config.schema import Config
from tfvolta.errors import ConfigError, Problem
from tfvolta.session.ending import Origin
from tfvolta.session.session import Session

_open: list[Session] = []
_kept: list[str] = []  # evidence files of sessions that ended with this process, in the order of their starts


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
    pid = os.getpid()
    if not _kept:
        atexit.register(_say_where, pid)  # registered first, so that it is called last
    if session.place.is_chief and session.recorder.path is not None:
        _kept.append(session.recorder.path)

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


def _say_where(pid: int) -> None:
    """Says in one line where the evidence is: a script that calls tfvolta itself prints no report."""
    paths = [path for path in _kept if os.path.exists(path)]
    if os.getpid() != pid or not paths:
        return
    more = f" (and {len(paths) - 1} before it)" if len(paths) > 1 else ""
    print(f"tfvolta: evidence in {paths[-1]}{more}; tfvolta report {os.path.dirname(paths[-1])}", file=sys.stderr)
