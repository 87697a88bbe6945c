"""Quantities with a unit, such as ``12GB``: what they are in the unit that a key's name asks for."""

from __future__ import annotations

import math
import re
from typing import Optional, Union

_QUANTITY = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
# GPU memory sizes are powers of two whatever they are called: a 16 GB card has 16 GiB.
_MEBIBYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 2.0**-20),
    **dict.fromkeys(("k", "kb", "kib", "kilobytes"), 2.0**-10),
    **dict.fromkeys(("m", "mb", "mib", "megabytes", "mebibytes"), 1.0),
    **dict.fromkeys(("g", "gb", "gib", "gigabytes", "gibibytes"), 2.0**10),
    **dict.fromkeys(("t", "tb", "tib"), 2.0**20),
}
_SECONDS = {
    **dict.fromkeys(("us", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}
_TABLES = {"MiB": _MEBIBYTES, "seconds": _SECONDS}
Number = Union[int, float]


def converted(text: str, unit: str) -> Optional[Number]:
    """A quantity in text, such as ``12 GiB``, in MiB or seconds; None where the text is none or of another kind."""
    match = _QUANTITY.fullmatch(text)
    factor = None if match is None else _TABLES.get(unit, {}).get(match[2].lower())
    if match is None or factor is None:
        return None
    return rounded(float(match[1].replace("_", "").replace(",", "")) * factor, unit)


def rescaled(value: Number, given_unit: str, unit: str) -> Optional[Number]:
    """A number in one unit as a number in another; None where the unit is unknown."""
    factor = _TABLES.get(unit, {}).get(given_unit.lower())
    return None if factor is None else rounded(value * factor, unit)


def rounded(value: float, unit: str) -> Number:
    """Whole MiB, upwards; seconds as they are, without a needless fraction."""
    if not math.isfinite(value):
        return value
    return math.ceil(value) if unit == "MiB" or value == int(value) else value


def without_unit(name: str) -> tuple[str, str]:
    """A key's name without the unit at its end, and that unit in lower case; an empty unit where there is none."""
    stem, separator, last = name.rpartition("_")
    if separator and any(last.lower() in table for table in _TABLES.values()):
        return re.sub(r"_in$", "", stem), last.lower()
    return name, ""
