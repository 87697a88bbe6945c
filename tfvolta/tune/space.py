"""The settings that are searched: axes of options, and which of their combinations are still worth a trial."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, Mapping, Optional, Sequence

import numpy as np

from tfvolta.tune.candidates import CANDIDATES, Candidate, Situation, Words, changes_results
from tfvolta.tune.result import Dimension, Pruned

Kind = Literal["conflict", "contradiction", "not_applicable", "no_effect", "same", "failed"]
Point = tuple[int, ...]  # an option of each axis
_MOST_COMBINATIONS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Axis:
    """One thing that is searched.

    Attributes:
        key: Its main config key.
        options: Words of each option; the first has none and is what the user's config has.
        candidate: Where it comes from; None for one of a recorded grid.
    """

    key: str
    options: tuple[Words, ...]
    candidate: Optional[Candidate] = None

    @property
    def labels(self) -> list[str]:
        """A name of each option, for a person and for the storage."""
        return [" ".join(words) or "as given" for words in self.options]

    def to_record(self) -> Dimension:
        """The row of a result."""
        return Dimension(
            name=self.key,
            knob=self.candidate.knob.name if self.candidate is not None else "",
            values=tuple(self.labels),
            changes_results=any(changes_results(words) for words in self.options),
        )


@dataclasses.dataclass(frozen=True)
class Ruling:
    """Why something is not tried.

    Attributes:
        kind: What rules it out.
        rule: In words.
    """

    kind: Kind
    rule: str


def axes_for(situation: Situation, allowed: Sequence[str] = ()) -> tuple[Axis, ...]:
    """The axes of a config on a machine.

    A value by which results can change, as its knob says, is left out unless its group is allowed.

    Args:
        situation: The config and the machine.
        allowed: Groups that may change results.
    """
    found = []
    for candidate in CANDIDATES:
        given = candidate.given(situation.config)
        options = [
            words
            for words in candidate.values(situation)
            if (candidate.group in allowed or not changes_results(words)) and words[0].partition("=")[2] != given
        ]
        if options:
            found.append(Axis(candidate.key, ((), *options), candidate))
    return tuple(found)


class Space:
    """Combinations of options, with those that are ruled out and why.

    Attributes:
        axes: What is searched.
        pruned: What was ruled out, each combination under the first rule that hit it.
    """

    def __init__(self, axes: Sequence[Axis]):
        self.axes = tuple(axes)
        while math.prod(len(axis.options) for axis in self.axes) > _MOST_COMBINATIONS:
            self.axes = self.axes[:-1]  # the last candidates are the least likely to pay
        self._alive: Any = np.ones([len(axis.options) for axis in self.axes], dtype=bool)
        self.pruned: list[Pruned] = []

    @property
    def combinations(self) -> int:
        """Size before rules."""
        return int(self._alive.size)

    @property
    def baseline(self) -> Point:
        """The user's config as it is."""
        return (0,) * len(self.axes)

    def points(self) -> Any:
        """What is left, as an array of shape (combinations, axes)."""
        return np.argwhere(self._alive)

    @property
    def left(self) -> int:
        """How many are left."""
        return int(self._alive.sum())

    def sample(self, count: int, random: Any) -> Any:
        """Some of what is left, drawn without replacement, as ``points`` gives them."""
        flat = np.flatnonzero(self._alive)
        chosen = flat if len(flat) <= count else random.choice(flat, count, replace=False)
        return np.stack(np.unravel_index(chosen, self._alive.shape), axis=1)

    def near(self, point: Point, flips: int) -> Any:
        """What is left and differs in so many axes at most, but the point itself."""
        found: set[Point] = {point}
        for _ in range(flips):
            found |= {
                (*each[:axis], option, *each[axis + 1 :])
                for each in found
                for axis in range(len(self.axes))
                for option in range(len(self.axes[axis].options))
            }
        kept = sorted(each for each in found - {point} if self._alive[each])
        return np.array(kept, dtype=int).reshape(len(kept), len(self.axes))

    def words(self, point: Point) -> Words:
        """``KEY=VALUE`` words of a combination."""
        return tuple(word for axis, option in zip(self.axes, point) for word in axis.options[option])

    def settings(self, point: Point) -> dict[str, str]:
        """The same by key."""
        return dict(word.partition("=")[::2] for word in self.words(point))

    def labels(self, point: Point) -> dict[str, str]:
        """The name of each axis's option."""
        return {axis.key: axis.labels[option] for axis, option in zip(self.axes, point)}

    def point_of(self, labels: Mapping[str, str]) -> Optional[Point]:
        """The combination of these names; None where the space has no such."""
        try:
            return tuple(axis.labels.index(labels[axis.key]) for axis in self.axes)
        except (KeyError, ValueError):
            return None

    def rule_out(self, options: Mapping[int, int], ruling: Ruling) -> int:
        """Rules out every combination that has these options; how many that were.

        Args:
            options: Option by number of axis.
            ruling: Why.
        """
        place: Any = tuple(options.get(axis, slice(None)) for axis in range(len(self.axes)))
        view = self._alive[place]
        if not options.keys() or all(option == 0 for option in options.values()):
            raise ValueError("the user's own config cannot be ruled out")
        count = int(view.sum()) if hasattr(view, "sum") else int(view)
        self._alive[place] = False
        if count:
            point = tuple(options.get(axis, 0) for axis in range(len(self.axes)))
            self._note(ruling, count, self.settings(point))
        return count

    def _note(self, ruling: Ruling, count: int, example: dict[str, Any]) -> None:
        for number, each in enumerate(self.pruned):
            if (each.kind, each.rule) == (ruling.kind, ruling.rule):
                total = each.combinations + count
                self.pruned[number] = each.model_copy(update={"combinations": total})
                return
        self.pruned.append(Pruned(rule=ruling.rule, kind=ruling.kind, combinations=count, example=example))
