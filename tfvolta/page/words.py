"""Sentences and marks that several sections of a page share."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional

from tfvolta.outcome import Status
from tfvolta.page.markup import Markup, element
from tfvolta.report.verdict import WORDS

TONES = {
    Status.APPLIED: "good",
    Status.NO_EFFECT: "bad",
    Status.LATE: "bad",
    Status.NOT_APPLICABLE: "quiet",
    Status.UNVERIFIABLE: "doubt",
    Status.PENDING: "doubt",
}


def mark(text: str, tone: str) -> Markup:
    """A word with a sign beside it; its colour alone says nothing."""
    return element("span", text, class_=f"mark {tone}")


def status_mark(status: Status) -> Markup:
    """The mark of an outcome."""
    return mark(WORDS[status], TONES[status])


def mebibytes(value: Optional[float]) -> str:
    """Bytes as MiB or GiB."""
    if value is None:
        return "not known"
    return f"{value / 2**30:,.2f} GiB" if value >= 2**30 else f"{value / 2**20:,.0f} MiB"


def milliseconds(seconds: Optional[float]) -> str:
    """Seconds as milliseconds."""
    return "not known" if seconds is None else f"{1e3 * seconds:,.4g} ms"


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one in its place: evidence holds what callbacks gave, of any version."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """A JSON list, or an empty one in its place."""
    return value if isinstance(value, list) else []


def figure(value: Any) -> Optional[float]:
    """A finite number, or None for what is none."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def rate_text(value: float) -> str:
    """Examples a second, with the digits that a rate has."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
