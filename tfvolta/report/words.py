"""Values as a person reads them."""

from __future__ import annotations

import json
from typing import Any

from tfvolta.report.comparison import ABSENT


def number(value: float) -> str:
    """A number with as many digits as are worth reading: ``1,234``, ``56.8``, ``0.00123``."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def shown(value: Any, limit: int = 0) -> str:
    """A JSON value in one line; cut to ``limit`` characters when that is given."""
    if value is ABSENT:
        text = "-"
    elif value is None:
        text = "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (int, float)):
        text = number(value)
    elif isinstance(value, str):
        text = " ".join(value.split())
    elif isinstance(value, dict):
        text = ", ".join(f"{key}={shown(item)}" for key, item in value.items()) or "none"
    elif isinstance(value, list):
        text = ", ".join(shown(item) for item in value) or "none"
    else:
        text = json.dumps(value, default=str)
    return text if not limit or len(text) <= limit else f"{text[: limit - 3]}..."
