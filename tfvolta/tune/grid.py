"""A grid of settings that were all measured, so that a search can be judged by what it would have found there.

The format is a JSON file; ``benchmarks/grid/README.md`` describes it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Optional

from pydantic import Field, ValidationError, model_validator

from tfvolta.errors import Problem, TuneError
from tfvolta.evidence.schema import Record
from tfvolta.evidence.values import JsonObject
from tfvolta.facts.schema import Facts
from tfvolta.tune.result import Ending
from tfvolta.tune.space import Axis, Space
from tfvolta.tune.speed_trial import Block, SpeedTrial


class GridAxis(Record):
    """One setting of the grid.

    Attributes:
        key: Its main config key.
        options: ``KEY=VALUE`` words of each option; the first has none and is what ``overrides`` give.
    """

    key: str
    options: tuple[tuple[str, ...], ...]

    @model_validator(mode="after")
    def _begins_with_the_baseline(self) -> GridAxis:
        if len(self.options) < 2 or self.options[0] or len(set(self.options)) != len(self.options):
            raise ValueError("options: expected () first, and at least one other, each once")
        return self


class GridPoint(Record):
    """One combination that was measured.

    Attributes:
        words: Its settings, in the order of the axes.
        ending: How that ended.
        reason: Why.
        blocks: Seconds, batches and examples of each timed block, in their order; examples null where not counted.
        startup_seconds: From the start of the process to its first step.
        first_step_seconds: The first call of the train function.
    """

    words: tuple[str, ...] = ()
    ending: Ending
    reason: str = ""
    blocks: tuple[tuple[float, int, Optional[int]], ...] = ()
    startup_seconds: Optional[float] = None
    first_step_seconds: Optional[float] = None

    def trial(self, blocks: Optional[tuple[Block, ...]] = None) -> SpeedTrial:
        """The point as a trial.

        Args:
            blocks: Instead of those that were measured.
        """
        own = tuple(Block(*each) for each in self.blocks)
        return SpeedTrial(
            self.ending,
            self.reason,
            own if blocks is None else blocks,
            startup_seconds=self.startup_seconds,
            first_step_seconds=self.first_step_seconds,
        )


class Grid(Record):
    """A grid.

    Attributes:
        model: What was trained.
        facts: Machine and stack.
        command: What recorded it.
        overrides: ``KEY=VALUE`` words of the baseline, on ``tfvolta:default``.
        traits: Of the model, as the baseline's process saw it.
        axes: Settings.
        points: All combinations, or as many as were recorded so far.
    """

    schema_version: Literal[1] = 1
    model: str
    created: str = ""
    facts: Facts
    command: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    traits: JsonObject = Field(default_factory=dict)
    axes: tuple[GridAxis, ...]
    points: tuple[GridPoint, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Combinations."""
        return math.prod(len(axis.options) for axis in self.axes)

    @property
    def best(self) -> GridPoint:
        """The fastest point."""
        return max(self.points, key=lambda point: point.trial().rate if point.ending == "measured" else 0.0)

    def space(self) -> Space:
        """What a search may try."""
        return Space([Axis(axis.key, axis.options) for axis in self.axes])

    def combinations(self) -> list[tuple[str, ...]]:
        """Words of every combination, in order."""
        space = self.space()
        return [space.words(tuple(int(option) for option in point)) for point in space.points()]

    def point(self, words: tuple[str, ...]) -> Optional[GridPoint]:
        """What was recorded of a combination."""
        return next((each for each in self.points if each.words == words), None)

    def missing(self) -> list[tuple[str, ...]]:
        """Combinations that are still to be recorded."""
        known = {point.words for point in self.points}
        return [words for words in self.combinations() if words not in known]

    def with_point(self, point: GridPoint) -> Grid:
        """The grid with one point more, or anew."""
        others = tuple(each for each in self.points if each.words != point.words)
        return self.model_copy(update={"points": (*others, point)})


def read_grid(path: Path) -> Grid:
    """Reads a grid.

    Raises:
        TuneError: It is none.
    """
    try:
        return Grid.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        problem = Problem(
            str(path), "a recorded grid", f"{type(error).__name__}: {error}", fix="benchmarks/grid/README.md"
        )
        raise TuneError("The grid cannot be read.", [problem]) from error


def write_grid(grid: Grid, path: Path) -> None:
    """Writes a grid, whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    content: Any = grid.model_dump_json(indent=1, exclude_defaults=True)
    unfinished.write_text(content + "\n", encoding="utf-8")
    unfinished.replace(path)
