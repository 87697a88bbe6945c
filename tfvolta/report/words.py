"""Values as a person reads them."""

from __future__ import annotations

import json
import re
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
    return text if not limit or len(text) <= limit else _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    """The beginning of a text, whole words of it where there are some."""
    head = text[: limit - 3]
    whole = head.rpartition(" ")[0].rstrip(" ,;:")
    return f"{whole} ..." if len(whole) > limit // 3 else f"{head}..."


def in_lines(text: str, limit: int, indent: str = "") -> str:
    """A text in which words longer than a limit, such as paths and dotted keys, are broken between names.

    Args:
        text: Words with blanks between them, which are left as they are.
        limit: Characters of a line.
        indent: Before what is broken off.
    """
    return " ".join(word if len(word) <= limit else _broken(word, limit, indent) for word in text.split(" "))


def _broken(word: str, limit: int, indent: str) -> str:
    lines = [""]
    for part in re.split(r"(?<=[/.])", word):
        if lines[-1].strip() and len(lines[-1]) + len(part) > limit:
            lines.append(indent)
        lines[-1] += part
    return "\n".join(lines)
