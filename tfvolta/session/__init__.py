"""Applying a plan to this process: the session, its context and its evidence."""

from __future__ import annotations

from tfvolta.session.ending import Ending, Origin
from tfvolta.session.process import session_for
from tfvolta.session.session import Session

__all__ = ["Ending", "Origin", "Session", "session_for"]
