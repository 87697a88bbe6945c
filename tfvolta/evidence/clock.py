"""Times of evidence: UTC, in a form that sorts."""

from __future__ import annotations

import datetime


def now() -> str:
    """This moment as an ISO time in UTC, such as ``2026-03-01T12:30:05.250Z``."""
    moment = datetime.datetime.now(datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp() -> str:
    """This second in a form that file names can hold, such as ``20260301T123005Z``."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def seconds_between(start: str, end: str) -> float:
    """Seconds from one ISO time to another.

    Raises:
        ValueError: One of them is no ISO time.
    """
    first, last = (datetime.datetime.fromisoformat(time.replace("Z", "+00:00")) for time in (start, end))
    return (last - first).total_seconds()
