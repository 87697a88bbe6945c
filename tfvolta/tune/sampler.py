"""Optuna's sampler for settings: the combination of which most improvement is expected comes next.

Samplers that know nothing beforehand, such as Optuna's TPE, draw their first ten trials at random, which is more than
a whole search may cost here; this one begins with what an expert expects and learns from each trial.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

import numpy as np
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from tfvolta.tune.belief import NOISE, Belief, Seen, improvement
from tfvolta.tune.history import RECORD, distributions
from tfvolta.tune.space import Point, Space

_MOST_POINTS = 20_000


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What to try next.

    Attributes:
        point: The combination.
        gain: Expected improvement over the best so far, as a share.
        ratio: Expected throughput over the baseline's.
        why: In words.
    """

    point: Point
    gain: float
    ratio: float
    why: str


class ExpertSampler(BaseSampler):  # type: ignore[misc]
    """Proposes combinations of a space.

    Attributes:
        belief: None until the first trial has shown what the model is like; the baseline comes before.
    """

    def __init__(self, space: Space, seed: int = 0):
        self.belief: Optional[Belief] = None
        self._space = space
        self._random = np.random.default_rng(seed)
        self._fallback = RandomSampler(seed=seed)
        self._next: Optional[Proposal] = None

    def propose(self, study: Any) -> Optional[Proposal]:
        """What the next trial will be; None where nothing is left to try."""
        seen = self.seen(study)
        if not seen or self.belief is None:
            return Proposal(self._space.baseline, math.inf, 1.0, "the config as it is")
        points = self._untried({each.point for each in seen}, self._best(seen))
        if not len(points):
            return None
        mean, deviation = self.belief.after(seen, points)
        best = max(each.gain for each in seen if each.gain is not None)
        gains = improvement(mean, deviation, best)
        gains = gains * (1 + 1e-6 * self._random.random(len(gains)))  # no order among what is expected alike
        place = int(np.argmax(gains))
        point = tuple(int(option) for option in points[place])
        self._next = Proposal(point, float(gains[place]), math.exp(mean[place]), "")
        why = self.belief.why(point, self._best(seen))
        self._next = dataclasses.replace(self._next, why=why)
        return self._next

    def believed(self, study: Any, points: list[Point]) -> list[float]:
        """Throughput of combinations that were tried, over the baseline's, as all trials together let it appear."""
        seen = self.seen(study)
        if self.belief is None or not seen:
            return [1.0] * len(points)
        mean, _ = self.belief.after(seen, np.array(points))
        return [math.exp(value) for value in mean]

    def seen(self, study: Any) -> list[Seen]:
        """What was tried, in logarithms over the baseline; nothing before the baseline has ended well."""
        trials = [each for each in study.get_trials(deepcopy=False) if RECORD in each.user_attrs]
        rated = [(each, self._space.point_of(each.params), _rate(each)) for each in trials]
        base = next((rate for _, point, rate in rated if point == self._space.baseline and rate), None)
        if base is None:
            return []
        return [
            Seen(point, None if rate is None else math.log(rate / base), _noise(each))
            for each, point, rate in rated
            if point is not None
        ]

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """All axes are sampled together."""
        return distributions(self._space)

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        """The combination that was proposed."""
        proposal = self._next or self.propose(study)
        self._next = None
        return self._space.labels(proposal.point if proposal is not None else self._space.baseline)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """For parameters that are no axis."""
        return self._fallback.sample_independent(study, trial, param_name, param_distribution)

    def _best(self, seen: list[Seen]) -> Point:
        return max((each for each in seen if each.gain is not None), key=lambda each: each.gain).point

    def _untried(self, tried: set[Point], best: Point) -> Any:
        """Combinations to choose from: all of them, or of very many a part, with the neighbours of the best."""
        space = self._space
        if space.left <= _MOST_POINTS:
            points = space.points()
        else:
            points = np.concatenate([space.sample(_MOST_POINTS, self._random), space.near(best, 2)])
            points = np.unique(np.concatenate([points, self._climb(points)]), axis=0)
        keep = [tuple(int(option) for option in point) not in tried for point in points]
        return points[np.array(keep, dtype=bool)] if len(points) else points

    def _climb(self, points: Any) -> Any:
        """From the likeliest of some points to the best of their neighbours, and on, while the expert sees a gain."""
        assert self.belief is not None
        means = self.belief.mean(points)
        place, height = points[int(np.argmax(means))], float(means.max())
        path = [place]
        while True:
            around = self._space.near(tuple(int(option) for option in place), 1)
            means = self.belief.mean(around) if len(around) else np.array([-np.inf])
            if float(means.max()) <= height:
                return np.array(path)
            place, height = around[int(np.argmax(means))], float(means.max())
            path.append(place)


def _rate(trial: Any) -> Optional[float]:
    if trial.state is TrialState.COMPLETE:
        return float(trial.value)
    if trial.state is TrialState.PRUNED and trial.intermediate_values:
        return float(trial.intermediate_values[max(trial.intermediate_values)])
    return None


def _noise(trial: Any) -> float:
    """Of the logarithm of a rate that is a median over blocks."""
    record = trial.user_attrs[RECORD]
    blocks = [(part[2] or part[1]) / part[0] for part in record.get("blocks", ()) if part[0]]
    if len(blocks) < 2:
        return 5 * NOISE
    spread = 1.4826 * float(np.median(np.abs(np.array(blocks) - np.median(blocks)))) / float(np.median(blocks))
    return max(NOISE / 2, 1.2533 * spread / math.sqrt(len(blocks)))
