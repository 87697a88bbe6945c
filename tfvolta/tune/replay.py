"""The same search on a recorded grid instead of live trials: what it finds, and with how many trials.

``python -m tfvolta.tune.replay GRID [GRID...]`` prints a line for each grid.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as np

from tfvolta.errors import Problem, TuneError
from tfvolta.tune.candidates import CANDIDATES, Words
from tfvolta.tune.grid import Grid, GridPoint, read_grid
from tfvolta.tune.history import History
from tfvolta.tune.plan_rules import PlanRules
from tfvolta.tune.search import Budget, Search
from tfvolta.tune.speed_process import Decide
from tfvolta.tune.speed_trial import Block, SpeedTrial

SEEDS = 20
SHARE_OF_TRIALS = 0.25
_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Found:
    """What one replay found.

    Attributes:
        seed: Of noise and of chance in the search.
        words: The settings that it chose.
        share: Their throughput over that of the best point, both as recorded.
        most: Upper end of the 95 % interval of that: below 0.98, the grid itself says that they are worse.
        trials: Trials that it took, the baseline among them.
    """

    seed: int
    words: Words
    share: float
    most: float
    trials: int


@dataclasses.dataclass(frozen=True)
class Replay:
    """Replays of one grid.

    Attributes:
        model: Of the grid.
        stack: Of the grid.
        points: Size of the grid.
        gain: Throughput of the best point over the baseline's.
        found: One for each seed.
    """

    model: str
    stack: str
    points: int
    gain: float
    found: tuple[Found, ...]

    @property
    def least_share(self) -> float:
        """Of the seeds, the worst."""
        return min(each.share for each in self.found)

    @property
    def least_most(self) -> float:
        """Of the seeds, the least that the share may really be at most, for all that the grid's noise allows to say."""
        return min(each.most for each in self.found)

    @property
    def most_trials(self) -> int:
        """Of the seeds, the most."""
        return max(each.trials for each in self.found)

    def sentence(self) -> str:
        """The figures in words."""
        usual = statistics.median(each.share for each in self.found)
        return (
            f"{self.model} on {self.stack}: {100 * self.least_share:.1f} % of the best of {self.points} points at "
            f"worst, {100 * usual:.1f} % in the median of {len(self.found)} seeds, "
            f"with at most {self.most_trials} trials; the best is {self.gain:.2f}x the baseline; the worst "
            f"choice may be {100 * self.least_most:.1f} % as far as the grid's noise lets it be told"
        )


class _Recorded:
    """Answers trials from a grid; each seed sees the recorded blocks in another sample, as it would on the machine."""

    def __init__(self, grid: Grid, seed: int):
        self._grid, self._random = grid, np.random.default_rng(seed)

    def __call__(self, words: Words, seed: int, describe: bool, is_slow: Decide) -> SpeedTrial:
        point = self._grid.point(words)
        if point is None:
            raise _incomplete(self._grid, words)
        recorded = [Block(*each) for each in point.blocks]
        if point.ending != "measured" or not recorded:
            return point.trial()
        drawn = [recorded[int(number)] for number in self._random.integers(len(recorded), size=len(recorded))]
        for count in range(1, len(drawn)):
            if is_slow(drawn[:count]):
                return dataclasses.replace(point.trial(tuple(drawn[:count])), ending="stopped")
        return dataclasses.replace(point.trial(tuple(drawn)), traits=self._grid.traits if describe else {})


def replay(grid: Grid, seeds: Sequence[int] = range(SEEDS), trials: Optional[int] = None) -> Replay:
    """Searches a grid once for each seed.

    Args:
        grid: Recorded to its end.
        seeds: Of noise and of chance in the search.
        trials: Most trials; a quarter of the points when None.

    Raises:
        TuneError: A point is missing, or the baseline was not measured.
    """
    if grid.missing():
        raise _incomplete(grid, grid.missing()[0])
    most = trials or max(2, int(SHARE_OF_TRIALS * grid.size))
    best = grid.best.trial().rate
    base: Any = grid.point(())
    return Replay(
        grid.model,
        grid.facts.stack,
        grid.size,
        best / base.trial().rate if base.trial().rate else float("inf"),
        tuple(_found(grid, seed, most, best) for seed in seeds),
    )


def _found(grid: Grid, seed: int, most: int, best: float) -> Found:
    space = grid.space()
    rules = PlanRules(None, grid.overrides, grid.facts, {})
    config = rules.load()
    rules.apply(space)
    given = {each.key: each.given(config) for each in CANDIDATES}
    search = Search(space, History.in_memory(), grid.facts, given, seed)
    search.open("replay")
    search.run(_Recorded(grid, seed), Budget(most, least_gain=0.0), lambda tried, proposal: None)
    chosen = search.best
    words = chosen.words if chosen is not None else ()
    point = grid.point(words)
    share = point.trial().rate / best if point is not None else 0.0
    upper = 0.0 if point is None else share if words == grid.best.words else _upper_end(point, grid.best)
    return Found(seed, words, share, upper, len(search.tried))


def _upper_end(point: GridPoint, best: GridPoint) -> float:
    """Upper end of the interval of a ratio of two medians, by the bootstrap.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    """
    random = np.random.default_rng(0)
    medians = []
    for each in (point, best):
        rates = np.array([(examples or batches) / seconds for seconds, batches, examples in each.blocks])
        medians.append(np.median(random.choice(rates, size=(_RESAMPLES, len(rates))), axis=1))
    return float(np.percentile(medians[0] / medians[1], 97.5))


def _incomplete(grid: Grid, words: Words) -> TuneError:
    problem = Problem(
        where=f"grid of {grid.model} on {grid.facts.stack}",
        expected=f"all {grid.size} points",
        received=f"{len(grid.points)}; missing among others: {' '.join(words) or 'the baseline'}",
        fix="record the others: benchmarks/grid/record.py goes on where it ended",
    )
    return TuneError("This grid is not recorded to its end.", [problem])


def main(words: Optional[Sequence[str]] = None) -> int:
    """Replays grids; 1 where one of them is not found well enough."""
    parser = argparse.ArgumentParser(prog="python -m tfvolta.tune.replay", description=__doc__)
    parser.add_argument("grids", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--trials", type=int, help="most trials; a quarter of the points by default")
    parser.add_argument("--least", type=float, default=0.98, help="share of the best that every seed has to find")
    arguments = parser.parse_args(words)
    code = 0
    for path in arguments.grids:
        result = replay(read_grid(path), range(arguments.seeds), arguments.trials)
        print(result.sentence())
        code = max(code, int(result.least_share < arguments.least))
    return code


if __name__ == "__main__":
    sys.exit(main())
