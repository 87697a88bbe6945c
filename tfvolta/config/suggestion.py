"""Which key was meant by one that the schema does not have."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Any, Iterable, Optional

from tfvolta.config.catalogue import keys_under, sections, settings
from tfvolta.config.remedy import better_value
from tfvolta.config.spellings import NAMED_VALUES, SPELLINGS
from tfvolta.config.units import rescaled, without_unit


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A key that was probably meant.

    Attributes:
        keys: Dotted; more than one where several sections have such a key.
        value: The value to write under the first of them; None where it cannot be told.
        why: The reason, when it is more than a slip of the pen.
    """

    keys: tuple[str, ...]
    value: Any = None
    why: str = ""


def suggest(section: str, name: str, value: Any) -> Optional[Suggestion]:
    """Finds what an unknown key was meant to be.

    Args:
        section: Dotted section in which it stands; empty at the top.
        name: The key as it was written.
        value: What was written under it, for a suggestion that can be copied.
    """
    word = _snake(name)
    here = f"{section}." if section else ""
    spelled = SPELLINGS.get(f"{here}{word}") or SPELLINGS.get(word)
    dotted = next((key for key in (f"{here}{name}", name) if "." in name and key in _all_keys()), None)
    own = keys_under(section)
    for found, why in (
        ([dotted] if dotted else [], "a dot does not nest keys in YAML"),
        ([here + word] if word in own else [], "keys are in lower case with underscores"),
        ([spelled] if spelled else [], ""),
        (_same_measure(word, [here + key for key in own]), "the unit is part of the name"),
        ([key for key in _all_keys() if _last(key) == word and key != section], "it belongs to another section"),
        (_same_measure(word, settings()), "the unit is part of the name"),
        (_close(word, [here + key for key in own], 0.6), ""),
        (_close(word, _all_keys(), 0.8), ""),
    ):
        if found:
            return Suggestion(tuple(found), _value(found[0], word, value), why)
    return None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_").lower()


def _all_keys() -> list[str]:
    return [*sections(), *settings()]


def _same_measure(word: str, keys: Iterable[str]) -> list[str]:
    """Keys that measure the same in another unit: ``workspace_limit_gb`` for ``workspace_limit_mb``."""
    stem, _ = without_unit(word)
    return [key for key in keys if key in settings() and settings()[key].unit and _stem(key) == stem]


def _stem(key: str) -> str:
    return without_unit(_last(key))[0]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _close(word: str, keys: Iterable[str], cutoff: float) -> list[str]:
    names = {_last(key): key for key in reversed(list(keys))}
    return [names[match] for match in difflib.get_close_matches(word, list(names), n=1, cutoff=cutoff)]


def _value(key: str, word: str, value: Any) -> Any:
    """What to write under the key that was meant."""
    setting = settings().get(key)
    if setting is None:
        return value
    if word in NAMED_VALUES and value in (True, 1, "true", "on", "yes"):
        return NAMED_VALUES[word]
    given_unit = without_unit(word)[1] or ("bytes" if word == "bytes_per_pack" else "")
    if setting.unit and isinstance(value, (int, float)) and not isinstance(value, bool):
        # A bare number under a name without a unit may be anything: better no value than a wrong one.
        value = rescaled(value, given_unit, setting.unit) if given_unit else None
    return better_value(setting, value) if value is not None else None
