"""Reads the words of a command line as numbers and choices, and tells everything that is wrong at once."""

from __future__ import annotations

import difflib
import math
from typing import Optional, Sequence

from tfvolta.errors import ConfigError, Problem


class ArgumentReader:
    """Collects problems while arguments are read; ``done`` raises them together."""

    def __init__(self, summary: str):
        self._summary = summary
        self._problems: list[Problem] = []

    def problem(self, where: str, expected: str, received: str, why: str = "", fix: str = "") -> None:
        """Notes one."""
        self._problems.append(Problem(where, expected, received, why, fix))

    def number(
        self,
        where: str,
        text: Optional[str],
        whole: bool = False,
        least: Optional[float] = None,
        most: float = math.inf,
    ) -> Optional[float]:
        """A finite number, above 0 unless ``least`` says otherwise; None where nothing or nothing usable was given.

        Args:
            where: Name of the argument.
            text: What was given; commas and underscores between digits are allowed.
            whole: Whether it must be a whole number.
            least: Smallest value allowed.
            most: Largest value allowed.
        """
        if text is None:
            return None
        try:
            value = float(text.replace(",", "").replace("_", ""))
        except ValueError:
            value = math.nan
        low = value > 0 if least is None else value >= least
        if math.isfinite(value) and low and value <= most and (not whole or value == int(value)):
            return value
        kind = "a whole number" if whole else "a number"
        above = "above 0" if least is None else f"of {least:g} or more"
        limit = "" if most == math.inf else f" and at most {most:g}"
        self.problem(where, f"{kind} {above}{limit}", text or "nothing")
        return None

    def counts(self, where: str, text: str) -> list[int]:
        """Whole numbers above 0 between commas, each once, the smallest first."""
        found, wrong = [], []
        for word in text.split(","):
            word = word.strip()
            if word.isdigit() and int(word) > 0:
                found.append(int(word))
            else:
                wrong.append(word or "nothing")
        if wrong:
            self.problem(where, "whole numbers above 0 between commas, such as 1,2,4,8", ", ".join(wrong))
        return sorted(set(found))

    def choice(self, where: str, text: str, choices: Sequence[str], otherwise: str = "") -> Optional[str]:
        """One of some words; None where it is none of them."""
        if text in choices:
            return text
        near = difflib.get_close_matches(text.lower().replace("-", "_"), choices, n=1, cutoff=0.5)
        fix = "; ".join(filter(None, (f"did you mean {near[0]}?" if near else "", otherwise)))
        self.problem(where, f"one of {', '.join(choices)}", text or "nothing", fix=fix)
        return None

    def done(self) -> None:
        """Ends the reading.

        Raises:
            ConfigError: Something was wrong.
        """
        if self._problems:
            raise ConfigError(self._summary, self._problems)
