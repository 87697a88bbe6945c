"""Applying a plan to this process: the session, its context and its evidence."""

from __future__ import annotations

from tfvolta.session.session import Ending, Origin, Session, session_for

__all__ = ["Ending", "Origin", "Session", "session_for"]
